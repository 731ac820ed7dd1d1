"""The folders are the picture of the design, and the arrows between them are executed here."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        ("foundation/errors.py", "import trainyard.wire.http", "foundation may import only nothing of ours"),
        ("wire/http.py", "from trainyard import objects", "wire may import only foundation"),
        ("wire/http.py", "from ..server import identity", "wire may import only foundation"),
        ("wire/http.py", "def f() -> None:\n    import trainyard.cli", "wire may import only foundation"),
        ("server/control/training.py", "from trainyard.wire import http", "server.control may import only"),
        ("engines/local.py", "import trainyard.instance.agent", "engines may import only"),
        ("instance/agent/run.py", "from trainyard.session import Session", "instance may import only"),
        ("cli/up.py", "from trainyard.server.home import Home", "cli may import only"),
        ("session.py", "from trainyard.server.app import App", "sdk may import only"),
        ("server/app.py", "import trainyard.session", "server may import only"),
        ("server/app.py", "import trainyard.testing.yard", "server may import only"),
        ("server/app.py", "import botocore.model", "but only wire may import botocore"),
        ("server/app.py", "import flask", "a package that has no seam"),
        (
            "objects/filesystem.py",
            "import awscrt.checksums",
            "but only formats.crc32c, objects.checksums may import awscrt",
        ),
    ],
)
def test_a_forbidden_import_is_found(module: str, line: str, complaint: str, tmp_path: Path) -> None:
    root = _tree(tmp_path, module, line)
    (found,) = violations(root)
    assert complaint in found


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("wire/http.py", "import json, trainyard.foundation.errors"),
        ("wire/models.py", "from trainyard import __version__"),
        ("wire/models.py", "import botocore.model"),
        ("objects/filesystem.py", "from .contract import ObjectStore"),
        ("server/services/s3.py", "from trainyard.wire import http"),
        ("cli/doctor.py", "from trainyard.engines import probe"),
        ("instance/compat/smdebug.py", "import trainyard.session"),
        ("data.py", "import torch"),
        ("testing/records.py", "import pytest, trainyard.server.records.contract"),
    ],
)
def test_a_permitted_import_is_not_reported(module: str, line: str, tmp_path: Path) -> None:
    assert violations(_tree(tmp_path, module, line)) == []


def test_a_cycle_is_found(tmp_path: Path) -> None:
    root = _tree(tmp_path, "wire/http.py", "import trainyard.wire.fault")
    (root / "wire" / "fault.py").write_text("from trainyard.wire import http")
    assert cycles(root) == [["trainyard.wire.fault", "trainyard.wire.http"]]


def _tree(folder: Path, module: str, line: str) -> Path:
    """A package with one module that has one line, and the modules such lines name."""
    root = folder / "trainyard"
    for name in ("wire/http.py", "server/identity.py", "engines/probe.py", "objects/__init__.py", module):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / module).write_text(line)
    return root
