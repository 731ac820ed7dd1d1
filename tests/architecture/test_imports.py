"""The folders are the picture of the design, and the arrows between them are executed here."""

import re
import subprocess
import sys
import tomllib

from tests.architecture.imports import cycles, modules
from tests.architecture.layers import SEAMS, SOURCE, violations

PYPROJECT = SOURCE.parents[1] / "pyproject.toml"


def test_every_import_follows_the_layers_and_the_seams() -> None:
    assert violations() == []


def test_no_modules_need_each_other_to_load() -> None:
    assert cycles(SOURCE) == []


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
    named_by_aws = "trainyard.instance.compat.smdebug."
    ours = [name for name in modules(SOURCE) if not name.startswith(named_by_aws)]
    assert [name for name in ours if drawers & set(re.split(r"[._]", name))] == []


def test_every_dependency_has_a_seam() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    names = [*project["dependencies"], *extras["postgres"], *extras["ray"], *extras["torch"]]
    assert {re.split(r"[\[<>=]", name)[0] for name in names} <= set(SEAMS)


def test_importing_the_package_brings_only_itself_and_the_standard_library() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import trainyard; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, SOURCE.parent], capture_output=True, text=True, check=True
    )
    foreign = {name.partition(".")[0] for name in run.stdout.split()} - sys.stdlib_module_names
    assert foreign == {"trainyard", "__main__"}
