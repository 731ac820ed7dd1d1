"""Packages that a job brings."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trainyard.instance.agent.installer import PINNED
from trainyard.instance.agent.layout import Owner
from trainyard.instance.agent.requirements import (
    has_requirements,
    installation_argv,
    overlay_interpreter,
    prepare_installation,
)
from trainyard.link.contract import ProgramSpec

SCRIPT = ProgramSpec("train.py")


def make_wheel(folder: Path, name: str, version: str, *, needs: str = "") -> Path:
    """A package of one module that knows its version."""
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needed = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", f"version = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    (tmp_path / "ml" / "code").mkdir(parents=True)
    return tmp_path / "ml"


def install(ml: Path, requirements: str) -> subprocess.CompletedProcess[str]:
    (ml / "code" / "requirements.txt").write_text(requirements)
    prepare_installation(ml, Owner(None))
    argv = [*installation_argv(sys.executable, str(ml))]
    options = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", "PATH": "/usr/bin:/bin"}
    return subprocess.run(argv, cwd=ml / "code", env=options, capture_output=True, text=True, check=False)


def python(ml: Path, program: str) -> str:
    run = subprocess.run([overlay_interpreter(str(ml)), "-c", program], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_only_a_python_program_with_a_list_has_requirements(ml: Path) -> None:
    assert not has_requirements(SCRIPT, ml / "code")
    (ml / "code" / "requirements.txt").write_text("")
    assert has_requirements(SCRIPT, ml / "code")
    assert not has_requirements(ProgramSpec("run.sh"), ml / "code")
    assert not has_requirements(ProgramSpec(command=("train",)), ml / "code")


def test_a_list_that_is_a_link_is_not_read(ml: Path) -> None:
    (ml / "code" / "requirements.txt").symlink_to("/etc/shadow")
    assert not has_requirements(SCRIPT, ml / "code")


def test_what_is_installed_is_seen_and_so_is_what_was_there_before(ml: Path) -> None:
    wheel = make_wheel(ml / "code", "yardtoy", "1.5")
    done = install(ml, f"./{wheel.name}\npytest\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert python(ml, "import yardtoy; print(yardtoy.version)") == "1.5"
    assert python(ml, "import pytest; print(pytest.__file__)") == pytest.__file__
    assert "Requirement already satisfied: pytest" in done.stdout


def test_a_package_of_the_overlay_wins_over_that_below(ml: Path) -> None:
    wheel = make_wheel(ml / "code", "iniconfig", "99.0")
    done = install(ml, f"./{wheel.name}\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert python(ml, "import iniconfig; print(iniconfig.version)") == "99.0"


def test_a_requirement_that_cannot_be_had_fails_with_pips_words(ml: Path) -> None:
    done = install(ml, "no-such-package-of-the-yard==1.0\n")
    assert done.returncode != 0
    assert "No matching distribution found for no-such-package-of-the-yard==1.0" in done.stderr


def test_frameworks_are_kept_as_they_are(ml: Path) -> None:
    """A framework of this environment that is asked for in another version fails, and both versions are named."""
    assert "torch" in PINNED
    make_wheel(ml / "code", "torch", "1.0")
    below = ml / "below"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", below], check=True)
    packages = next(below.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(make_wheel(ml / "code", "torch", "2.0")) as archive:
        archive.extractall(packages)
    site = Path(pytest.__file__).parents[1]
    (packages / "more.pth").write_text(f"{site}\n")  # for pip
    (ml / "code" / "requirements.txt").write_text("./torch-1.0-py3-none-any.whl\n")
    prepare_installation(ml, Owner(None))
    argv = installation_argv(str(below / "bin" / "python"), str(ml))
    done = subprocess.run(argv, cwd=ml / "code", capture_output=True, text=True, check=False, env={"PIP_NO_INDEX": "1"})
    assert done.returncode != 0
    assert "torch 1.0" in done.stdout + done.stderr
    assert "torch==2.0" in done.stdout + done.stderr
