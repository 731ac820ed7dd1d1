"""Programs that install packages themselves, as in a container of their own, by whole agents in real sandboxes."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.system.test_agent import World, bare_world, with_wheels, world
from tests.unit.instance.agent.private_index import PASSWORD, private_index
from tests.unit.instance.agent.wheels import make_wheel
from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.layout import ProgramUser
from trainyard.instance.agent.program.installation import find_uv
from trainyard.link.contract import FrameKind, ProgramSpec

__all__ = ["bare_world", "world"]

CODE = "s3://yard/code/sourcedir.tar.gz"
INSTALL = """
import json, subprocess, sys

def install(*words):
    run = subprocess.run([*words], capture_output=True, text=True)
    print(run.stdout, run.stderr, run.returncode, flush=True)
    run.check_returncode()

def version(name):
    return subprocess.run([sys.executable, "-c", f"import {name}; print({name}.version, {name}.__file__)"],
                          capture_output=True, text=True).stdout.split()
"""


@pytest.fixture
def environment(world: World) -> str:
    """A virtual environment of the yard's user, without pip, with one package."""
    folder = world.root / "environment"
    subprocess.run([world.interpreter, "-I", "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "yardold.py").write_text("version = '1.0'\n")
    (packages / "yardold-1.0.dist-info").mkdir()
    (packages / "yardold-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: yardold\nVersion: 1.0\n")
    (packages / "yardold-1.0.dist-info" / "RECORD").write_text("yardold.py,,\nyardold-1.0.dist-info/METADATA,,\n")
    (packages / "yardold-1.0.dist-info" / "INSTALLER").write_text("pip\n")
    if not world.is_root and os.geteuid() == 0:
        owner = ProgramUser(world.folder.root.stat().st_uid)
        owner.give_path(folder)
        with ConfinedFolder.open(folder) as opened:
            owner.give_tree(opened)
    return str(folder / "bin" / "python")


@pytest.fixture
def wheels(world: World, tmp_path: Path) -> dict[str, Any]:
    return with_wheels(world, make_wheel(tmp_path, "yardtoy", "1.5"), make_wheel(tmp_path, "yardold", "2.0"))


def listing(python: str) -> Iterator[str]:
    root = Path(python).parent.parent
    return (f"{path} {path.lstat().st_mtime_ns}" for path in sorted(root.rglob("*")))


def answer(world: World) -> Any:
    return json.loads(world.log()[-1])


def run(world: World, script: str, python: str, members: Mapping[str, Any]) -> Mapping[str, Any]:
    return world.run(INSTALL + script, program=ProgramSpec("train.py", CODE, (), python), **members)


@pytest.mark.parametrize(
    "command",
    [
        ("sys.executable", "'-m'", "'pip'", "'install'", "'--user'"),
        ("'pip'", "'install'"),
        pytest.param(
            ("'uv'", "'pip'", "'install'", "'--offline'", "'--find-links'", "'/opt/ml/input/data/wheels'"),
            marks=pytest.mark.skipif(find_uv() is None, reason="this machine has no uv"),
        ),
    ],
    ids=["pip for the user", "pip", "uv"],
)
def test_a_program_installs_packages_and_imports_them(
    world: World, environment: str, wheels: dict[str, Any], command: tuple[str, ...]
) -> None:
    if command[0] == "'uv'" and not os.access(Path(world.interpreter).with_name("uv"), os.X_OK):
        pytest.skip("the Python of this yard has no uv beside it")
    before = list(listing(environment))
    script = f"""
install({", ".join(command)}, "yardtoy", "yardold==2.0")
import yardtoy
print(json.dumps([yardtoy.version, yardtoy.__file__, *version("yardold")]))
"""
    verdict = run(world, script, environment, wheels)
    assert verdict["outcome"] == "completed", world.log()
    (packages,) = Path(environment).parent.parent.glob("lib/python*/site-packages")
    assert answer(world) == ["1.5", f"{packages}/yardtoy.py", "2.0", f"{packages}/yardold.py"]
    assert list(listing(environment)) == before


@pytest.mark.parametrize("command", ["'pip', 'install'", "'uv', 'pip', 'install', '--python', sys.executable"])
def test_an_environment_that_the_program_may_not_change_is_extended_in_the_home_folder(
    world: World, wheels: dict[str, Any], command: str
) -> None:
    if world.is_root:
        pytest.skip("a job of a yard of root may change its view of any environment")
    if "uv" in command and not os.access(Path(world.interpreter).with_name("uv"), os.X_OK):
        pytest.skip("the Python of this yard has no uv beside it")
    script = f"install({command}, 'yardtoy')\nimport yardtoy\nprint(json.dumps(yardtoy.__file__))\n"
    assert run(world, script, world.interpreter, wheels)["outcome"] == "completed", world.log()
    assert answer(world).startswith("/tmp/.local/lib/python3")
    notes = [payload["text"] for payload in world.payloads(FrameKind.NOTE)]
    assert any("packages that it installs go to its home folder" in note for note in notes), notes


def test_a_program_finds_the_commands_that_bootstrap_scripts_call(world: World, environment: str) -> None:
    script = """
import getpass, shutil
install("sudo", "-E", "-u", "root", "MARK=1", "sh", "-c", "test $MARK = 1")
install("sudo", "mkdir", "-p", "/opt/ml/input/made", "/opt/ml/cache/made")
print(json.dumps([getpass.getuser(), *(bool(shutil.which(name)) for name in
      ("bash", "cat", "which", "python", "python3", "pip", "pip3"))]))
"""
    assert run(world, script, environment, {})["outcome"] == "completed", world.log()
    assert answer(world) == ["root", *[True] * 7]


@pytest.mark.parametrize("installer", ["'pip'", "'uv', 'pip'"])
def test_a_job_with_requirements_adds_to_its_own_view_of_them(
    world: World, environment: str, tmp_path: Path, installer: str
) -> None:
    if "uv" in installer and not os.access(Path(world.interpreter).with_name("uv"), os.X_OK):
        pytest.skip("the Python of this yard has no uv beside it")
    # yardold 1.0 is in the environment of the image, and must not be installed a second time.
    wheels = with_wheels(
        world,
        make_wheel(tmp_path, "yardtoy", "1.5"),
        make_wheel(tmp_path, "yardold", "2.0"),
        make_wheel(tmp_path, "yardmore", "1.0", needs="yardold"),
    )
    script = f"""
install({installer}, 'install', 'yardmore')
import yardmore, yardtoy
kept = version('yardold')[0]
install({installer}, 'install', 'yardold==2.0')
print(json.dumps([kept, version('yardold')[0]]))
"""
    files = {"train.py": INSTALL + script, "requirements.txt": "yardtoy\n"}
    kept = world.root / "environments"
    members = wheels | {"environments": str(kept), "program": ProgramSpec("train.py", CODE, (), environment)}
    assert world.run(files, **members)["outcome"] == "completed", world.log()
    assert answer(world) == ["1.0", "2.0"]
    assert not list(kept.glob("*/lib/python*/site-packages/yardold*"))
    assert list(kept.glob("*/lib/python*/site-packages/yardtoy*"))


def test_what_a_program_downloads_is_kept_for_the_next_and_the_password_of_the_index_is_not_told(
    world: World, environment: str, tmp_path: Path
) -> None:
    script = """
install("pip", "install", "--no-cache-dir", "yardtoy")
import os, pathlib, yardtoy
settings = "".join(path.read_text() for path in pathlib.Path("/run/trainyard/settings").rglob("*.*"))
print(json.dumps([yardtoy.version, settings + str(os.environ)]))
"""
    members = {"environments": str(world.root / "environments")}
    with private_index([make_wheel(tmp_path, "yardtoy", "1.0")], link="/packages/{name}#sha256={digest}") as index:
        world.prefix = ["/usr/bin/env", f"PIP_INDEX_URL={index.url}"]
        for _ in range(2):
            assert run(world, script, environment, members)["outcome"] == "completed", world.log()
            version, seen = answer(world)
            assert version == "1.0"
            assert PASSWORD not in seen + "".join(world.log())
            world.begin_again()
    files = [path for _, path, _ in index.asked if path.startswith("/packages/")]
    assert files == ["/packages/yardtoy-1.0-py3-none-any.whl"]
