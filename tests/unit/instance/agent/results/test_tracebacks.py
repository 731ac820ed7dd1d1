"""Exceptions found in the output of real programs."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.instance.agent.results.tracebacks import RaisedException, find_exception


def written_by(program: str, folder: Path) -> str:
    """The output of a program that is run as a script."""
    script = folder / "train.py"
    script.write_text(program)
    run = subprocess.run([sys.executable, "-I", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return run.stdout.decode(errors="replace")


def found(text: str, folder: Path) -> RaisedException:
    exception = find_exception(text, str(folder))
    assert exception is not None, text
    return exception


@pytest.mark.parametrize(
    ("program", "said", "line", "source"),
    [
        ("x = 1\nraise ValueError('no such optimizer')", "ValueError: no such optimizer", 2, "raise ValueError"),
        ("def f():\n    return {}['a']\n\nf()", "KeyError: 'a'", 2, "return {}['a']"),
        ("import json\n\njson.loads('{')", "json.decoder.JSONDecodeError: Expecting property", 3, "json.loads('{')"),
        ("import nosuchpackage", "ModuleNotFoundError: No module named 'nosuchpackage'", 1, "import nosuchpackage"),
        ("assert 1 == 2", "AssertionError", 1, "assert 1 == 2"),
        ("raise RuntimeError('first\\nsecond')", "RuntimeError: first", 1, "raise RuntimeError"),
        (
            "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise OSError('later') from e",
            "OSError: later",
            4,
            "raise OSError",
        ),
        ("try:\n    1 / 0\nfinally:\n    {}['b']", "KeyError: 'b'", 4, "{}['b']"),
        ("def f(:\n    pass", "SyntaxError: invalid syntax", 1, "def f(:"),
        ("if True:\nx = 1", "IndentationError: expected an indented block", 2, "x = 1"),
        ("class Broken(Exception):\n    pass\n\nraise Broken('own')", "Broken: own", 4, "raise Broken"),
    ],
)
def test_an_exception_and_its_line_are_found(program: str, said: str, line: int, source: str, tmp_path: Path) -> None:
    exception = found(written_by(program, tmp_path), tmp_path)
    assert str(exception).startswith(said)
    assert exception.where is not None
    assert exception.where.file == str(tmp_path / "train.py")
    assert exception.where.line == line
    assert exception.where.text.startswith(source)


def test_what_a_program_writes_afterwards_does_not_hide_it(tmp_path: Path) -> None:
    program = "import atexit\natexit.register(print, 'Done: bye\\n  more')\nraise ValueError('boom')"
    assert str(found(written_by(program, tmp_path), tmp_path)) == "ValueError: boom"


def test_the_line_is_that_of_the_users_code_not_of_a_library(tmp_path: Path) -> None:
    program = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--a', nargs=0)"
    exception = found(written_by(program, tmp_path), tmp_path)
    assert exception.where is not None
    assert (exception.where.line, exception.where.function) == (3, "<module>")


def test_the_last_of_several_is_the_one(tmp_path: Path) -> None:
    program = "import traceback\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()\nraise TypeError('last')"
    assert str(found(written_by(program, tmp_path), tmp_path)) == "TypeError: last"


def test_a_group_of_exceptions_is_found(tmp_path: Path) -> None:
    program = "raise ExceptionGroup('both', [ValueError('one'), TypeError('two')])"
    assert str(found(written_by(program, tmp_path), tmp_path)) == "ExceptionGroup: both (2 sub-exceptions)"


def test_the_exception_of_a_worker_process_is_found(tmp_path: Path) -> None:
    program = (
        "import concurrent.futures as c\ndef work(x):\n    raise ValueError('in the worker')\n"
        "if __name__ == '__main__':\n    with c.ProcessPoolExecutor(1) as pool:\n        pool.submit(work, 1).result()"
    )
    assert str(found(written_by(program, tmp_path), tmp_path)) == "ValueError: in the worker"


def test_lines_that_a_launcher_marks_with_their_rank_are_read(tmp_path: Path) -> None:
    plain = written_by("x = 1\nraise ValueError('boom')", tmp_path)
    marked = "".join(f"[rank3]: {line}\n" for line in plain.splitlines())
    assert found(marked, tmp_path) == found(plain, tmp_path)


def test_the_original_exception_of_a_data_loader_is_found(tmp_path: Path) -> None:
    inner = written_by("raise ValueError('bad record')", tmp_path)
    outer = f"RuntimeError: Caught ValueError in DataLoader worker process 0.\nOriginal {inner}"
    assert str(found(outer, tmp_path)) == "ValueError: bad record"


@pytest.mark.parametrize(
    "program",
    [
        "print('all fine: yes')",
        "import sys\nsys.exit('gave up')",
        "import os\nos.abort()",
        "print('Traceback (most recent call last):')",
        "print('Traceback (most recent call last):\\nnothing more')",
    ],
)
def test_no_exception_is_made_up(program: str, tmp_path: Path) -> None:
    assert find_exception(written_by(program, tmp_path), str(tmp_path)) is None


def test_a_traceback_whose_beginning_is_lost_is_not_guessed(tmp_path: Path) -> None:
    text = written_by("def f():\n    raise ValueError('boom')\nf()", tmp_path)
    assert find_exception(text[len("Traceback") :], str(tmp_path)) is None
