"""What is installed in the environment of an image."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.instance.agent.program.image_environment import ImageEnvironment
from trainyard.instance.agent.program.requirements import normal_name


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "base"], check=True)
    return tmp_path / "base"


def packages_of(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def look(environment: Path) -> ImageEnvironment:
    return ImageEnvironment(environment / "bin" / "python")


def test_it_finds_what_this_python_finds() -> None:
    own = {normal_name(each.metadata["Name"]): each.version for each in importlib.metadata.distributions()}
    assert ImageEnvironment(Path(sys.executable)).installed == own


def test_a_new_environment_has_nothing(environment: Path) -> None:
    assert look(environment).installed == {}


def test_names_are_those_that_requirements_use(environment: Path) -> None:
    for name in ("Typing_Extensions-4.1.dist-info", "torch-2.13.0+cpu.dist-info", "old-1.0-py3.11.egg-info", "x.py"):
        (packages_of(environment) / name).mkdir()
    assert look(environment).installed == {"typing-extensions": "4.1", "torch": "2.13.0+cpu", "old": "1.0"}


def test_folders_that_path_files_name_count_too(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "more" / "numpy-2.0.dist-info").mkdir(parents=True)
    (packages_of(environment) / "numpy-1.0.dist-info").mkdir()
    (packages_of(environment) / "more.pth").write_text(f"# more\nimport sys\n{tmp_path / 'more'}\n/nowhere\n")
    assert look(environment).installed == {"numpy": "1.0"}
    (packages_of(environment) / "numpy-1.0.dist-info").rmdir()
    assert look(environment).installed == {"numpy": "2.0"}


def test_its_fingerprint_changes_with_what_is_installed_and_with_nothing_else(environment: Path) -> None:
    before = look(environment).fingerprint
    (packages_of(environment) / "__pycache__").mkdir()
    assert look(environment).fingerprint == before
    (packages_of(environment) / "numpy-1.0.dist-info").mkdir()
    assert look(environment).fingerprint != before


def test_environments_with_the_same_packages_differ(environment: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    assert look(environment).fingerprint != look(tmp_path / "other").fingerprint
