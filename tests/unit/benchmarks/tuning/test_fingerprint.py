import importlib

from benchmarks.tuning.fingerprint import fingerprint, meaning

PROGRAM = '"""Adds."""\n\ndef add(a: int, b: int) -> int:\n    """The sum."""\n    return a + b\n'


def test_words_for_readers_do_not_change_what_a_program_means() -> None:
    assert meaning(PROGRAM) == meaning("def add(a: int, b: int) -> int:\n    # of both\n    return (a + b)\n")


def test_other_code_means_something_else() -> None:
    assert meaning(PROGRAM) != meaning(PROGRAM.replace("a + b", "a - b"))


def test_other_imports_do_not_change_a_fingerprint() -> None:
    before = fingerprint.__wrapped__("trainyard.insight.tuning.advice")
    importlib.import_module("trainyard.insight.tuning.median")
    assert fingerprint.__wrapped__("trainyard.insight.tuning.advice") == before
    assert fingerprint("trainyard.insight.tuning.contract") != before
