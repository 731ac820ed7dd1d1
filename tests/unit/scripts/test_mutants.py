import ast
import os
from pathlib import Path

from scripts.mutants.__main__ import EQUIVALENT, known_equivalents
from scripts.mutants.core import AREAS
from scripts.mutants.operators import changes_of, mutants_of
from scripts.mutants.trials import ROOT, folder_of_copies


def faults(source: str) -> set[str]:
    return {mutant.after for mutant in mutants_of(source)}


FAULTS = [
    ("ok = a < b", "ok = a <= b"),
    ("ok = a is None", "ok = a is not None"),
    ("ok = a and b", "ok = a or b"),
    ("ok = a and b", "ok = (b)"),
    ("ok = not a", "ok = (a)"),
    ("n = a + b", "n = a - b"),
    ("n += 2", "n -= 2"),
    ("n = 7", "n = 8"),
    ("n = 7", "n = (6)"),
    ("on = True", "on = False"),
    ("x = -a", "x = a"),
    ("name = 'a'", "name = 'azz'"),
    ("name = f'{a}.json'", "name = f'.json'"),
    ("sync(folder)", "pass"),
    ("self.x = 1", "pass"),
    ("x = copy(a, b)", "x = copy(b, a)"),
    ("x = open(a, mode=b)", "x = open(a)"),
    ("x = max(a, b)", "x = min(a, b)"),
    ("x = sorted(a)", "x = a"),
    ("x = (a, b)", "x = (a,)"),
    ("x = {a: b}", "x = {}"),
    ("x = a[:3]", "x = a[:]"),
    ("x = [a for a in b if a]", "x = [a for a in b if True]"),
    ("raise NotFound(a)", "raise RuntimeError(a)"),
    ("with suppress(OSError): pass", "with suppress(): pass"),
]


def test_a_line_has_the_faults_that_a_programmer_could_make() -> None:
    assert [(line, fault) for line, fault in FAULTS if fault not in faults(line)] == []


def test_faults_of_whole_statements() -> None:
    loop = "for b in a:\n    if b:\n        continue\n"
    assert faults(loop) >= {"break", "pass", "if (not (b)):"}
    guarded = "def f(a):\n    try:\n        return a\n    except KeyError:\n        return 1\n"
    assert faults(guarded) >= {"return None", "except ():"}
    assert "@(lambda decorated: decorated)" in faults("@contextmanager\ndef f():\n    yield a\n")


def test_text_for_people_and_type_checkers_is_not_mutated() -> None:
    assert (
        faults('"""Text."""\n\nimport os\nlog = logging.getLogger("a")\nassert a < b, "text"\nlog.info("a", 1)\n')
        == set()
    )
    assert faults("def f(a: Literal['x']) -> tuple[int, str]:\n    ...\n") == set()
    assert faults('raise Conflict("a")') == {"pass", 'raise RuntimeError("a")'}


def test_mutants_compile_and_are_all_different() -> None:
    source = (ROOT / "src/trainyard/link/mailbox.py").read_text()
    mutants = mutants_of(source)
    assert len({ast.dump(ast.parse(mutant.source)) for mutant in mutants} - {ast.dump(ast.parse(source))}) == len(
        mutants
    )
    for mutant in mutants:
        assert mutant.before != mutant.after
        assert source.split("\n")[mutant.line - 1].strip() in mutant.before


def test_a_sample_is_the_same_each_time_and_another_with_another_seed() -> None:
    source = (ROOT / "src/trainyard/link/mailbox.py").read_text()
    sample = mutants_of(source, at_most=10, seed=1)
    assert len(sample) == 10
    assert sample == mutants_of(source, at_most=10, seed=1)
    assert sample != mutants_of(source, at_most=10, seed=2)


def test_every_pattern_of_the_core_finds_modules_and_every_module_has_tests() -> None:
    for area in AREAS:
        modules = list(area.files())
        assert len(modules) >= len(area.modules), area.name
        for module in modules:
            assert area.stages(module), module


def test_every_known_equivalent_is_still_a_mutant_and_has_a_reason() -> None:
    known = known_equivalents(EQUIVALENT.read_text())
    changes = {module: changes_of((ROOT / module).read_text()) for module in {entry[0] for entry in known}}
    assert [entry for entry in known if entry[1:] not in changes[entry[0]]] == []


def test_the_folder_of_copies_is_removed_however_deep_a_trial_has_made_it(tmp_path: Path) -> None:
    with folder_of_copies(tmp_path) as folder:
        descriptor = os.open(folder, os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("deeper", dir_fd=descriptor)
            inner = os.open("deeper", os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        os.close(descriptor)
    assert list(tmp_path.iterdir()) == []
