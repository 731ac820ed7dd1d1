"""The folders follow the architecture, and imports follow its arrows."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.architecture.imports import cycles, imports, modules
from tests.architecture.layers import SEAMS, SOURCE, violations

PYPROJECT = SOURCE.parents[1] / "pyproject.toml"


def test_every_import_follows_the_layers_and_the_seams() -> None:
    assert violations() == []


def tree(folder: Path, **sources: str) -> Path:
    """Create a package with our name and these modules; two underscores in a name stand for a dot."""
    root = folder / SOURCE.name
    for name, source in sources.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    for package in (root, *(path for path in root.rglob("*") if path.is_dir())):
        (package / "__init__.py").touch()
    return root


def test_an_import_of_a_layer_above_is_noticed(tmp_path: Path) -> None:
    root = tree(tmp_path, foundation__names="from trainyard.wire import http", wire__http="")
    (line,) = violations(root)
    assert line.startswith("trainyard.foundation.names:1 imports trainyard.wire.http, but foundation may import only")


def test_a_layer_that_is_reached_only_through_others_is_noticed(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        server__control__training="from trainyard.server.jobs import training",
        server__jobs__training="def load():\n    from trainyard.server.services import sagemaker",
        server__services__sagemaker="import trainyard.wire.http",
        wire__http="",
    )
    through = (
        "trainyard.server.control.training -> trainyard.server.jobs.training -> trainyard.server.services.sagemaker"
    )
    assert violations(root) == [
        f"{through}, but server.control may not reach server, not even through others",
        f"{through} -> trainyard.wire.http, but server.control may not reach wire, not even through others",
    ]


def test_what_a_part_may_reach_through_others_is_no_violation(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        cli__jobs="from trainyard import session",
        session="from trainyard.insight import tuning",
        insight__tuning="",
    )
    assert violations(root) == []


def test_scheduling_knows_no_kind_of_job() -> None:
    scheduling = [each for each in imports(SOURCE) if each.source.startswith("trainyard.server.control.scheduling")]
    kinds = ("trainyard.foundation.jobs.training", "trainyard.foundation.jobs.tuning")
    assert scheduling
    assert [str(each) for each in scheduling if each.target.startswith(kinds)] == []


def test_no_modules_need_each_other_to_load() -> None:
    assert cycles(SOURCE) == []


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
    named_by_aws = "trainyard.instance.compat.smdebug."
    ours = [name for name in modules(SOURCE) if not name.startswith(named_by_aws) and name != "trainyard.utils"]
    assert [name for name in ours if drawers & set(re.split(r"[._]", name))] == []


def test_every_dependency_has_a_seam() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    seen = ("debugger", "profiler", "tuning", "s3", "postgres", "ray", "torch")
    names = [*project["dependencies"], *(name for extra in seen for name in extras[extra])]
    assert {re.split(r"[\[<>=]", name)[0] for name in names} <= {*SEAMS, "trainyard"}


def test_importing_the_package_imports_only_itself_and_the_standard_library() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import trainyard; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, SOURCE.parent], capture_output=True, text=True, check=True
    )
    foreign = {name.partition(".")[0] for name in run.stdout.split()} - sys.stdlib_module_names
    assert foreign == {"trainyard", "__main__"}
