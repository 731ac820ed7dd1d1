"""The wheel contains every module, its types, and the files that are not Python."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.layers import SOURCE

REPOSITORY = SOURCE.parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    written = {
        str(path.relative_to(SOURCE.parent))
        for path in SOURCE.rglob("*")
        if path.is_file() and not any(part == "__pycache__" or part.startswith(".") for part in path.parts)
    }
    shipped = {name for name in wheel.namelist() if name.startswith("trainyard/")}
    assert shipped == written


def test_the_wheel_says_that_it_is_typed_and_how_it_is_licensed(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "trainyard/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_runs_from_a_folder_of_its_own(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", "import trainyard; print(trainyard.__file__)"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(run.stdout.strip()).is_relative_to(tmp_path)


def test_the_wheel_contains_smdebug(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """It is a file beside the package, so that the folder of the original wins if that is installed."""
    wheel.extractall(tmp_path)
    script = "import smdebug, smdebug.trials; print(smdebug.__file__, smdebug.trials.__file__)"
    run = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    inside = tmp_path / "trainyard" / "instance" / "compat" / "smdebug" / "trials" / "__init__.py"
    assert run.stdout.split() == [str(tmp_path / "smdebug.py"), str(inside)]
