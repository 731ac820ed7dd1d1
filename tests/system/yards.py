"""Yards of both kinds: one that root runs, and one that an ordinary user runs."""

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import trainyard
from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from trainyard.foundation.confined import remove_tree
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, engine_of_tests, start_yard

ROOT, USER = "root", "ordinary user"
KINDS = (ROOT, USER)
ORDINARY_UID = 54_341  # of the ordinary user, when root runs the tests


@dataclass
class Place:
    """The place of a yard of one kind: a folder that everybody can reach, its user, and a Python for this user."""

    kind: str
    folder: Path
    python: str
    uid: int
    name: str = "yard"  # of its folder

    @property
    def home(self) -> Path:
        return self.folder / self.name

    @property
    def home_of_user(self) -> Path:
        """The home folder of the user, without a yard in it."""
        return self.folder / "home"

    @property
    def is_root(self) -> bool:
        return self.kind == ROOT

    def start(self, **settings: str) -> RunningYard:
        """Start the yard with server settings by name."""
        environment = {f"TRAINYARD_SERVER_{name.upper()}": value for name, value in settings.items()}
        environment |= {"HOME": str(self.home_of_user)} if not self.is_root else {}
        uid = None if self.uid == os.geteuid() else self.uid
        return start_yard(self.home, environment=environment, python=self.python, uid=uid)

    @contextlib.contextmanager
    def running(self, **settings: str) -> Iterator[RunningYard]:
        yard = self.start(**settings)
        try:
            yield yard
        finally:
            if yard.process.poll() is None:
                yard.stop()

    def identity(self) -> dict[str, Any]:
        """Return arguments for subprocess that run a program as the yard's user."""
        return {} if self.uid == os.geteuid() else {"user": self.uid, "group": self.uid, "extra_groups": []}

    def give(self, path: Path) -> Path:
        """Make the yard's user the owner of files that a test created."""
        os.chown(path, self.uid, self.uid)
        return path

    def change_catalog(self, text: str) -> None:
        """Add instance types to the catalog, for the next start of the yard."""
        if not self.home.exists():
            with self.running():
                pass
        catalog = self.home / "catalog.toml"
        catalog.write_text(text)
        self.give(catalog)


@contextlib.contextmanager
def place_for(kind: str) -> Iterator[Place]:
    """Provide a place and remove it afterwards. Skip the test if this machine or user cannot have that kind."""
    if kind == ROOT and os.geteuid() != 0:
        pytest.skip("only root can run a yard as root")
    uid = ORDINARY_UID if kind == USER and os.geteuid() == 0 else os.geteuid()
    if engine_of_tests() == "ray" and not _is_same_version(os.environ["TRAINYARD_SERVER_RAY_PYTHON"], uid):
        pytest.skip("an ordinary user may not start the Python that has Ray")
    # Not the folder of pytest, which is closed to other users. Jobs would see this one if it were not hidden from them.
    folder = Path(tempfile.mkdtemp(prefix="trainyard-", dir="/opt" if os.geteuid() == 0 else "/tmp"))
    folder.chmod(0o755)
    try:
        python = sys.executable if uid == os.geteuid() else python_for(uid, folder)
        place = Place(kind, folder, python, uid)
        place.home_of_user.mkdir(mode=0o700)
        place.give(place.home_of_user)
        yield place
    finally:
        remove_left(folder)


def remove_left(folder: Path) -> None:
    """Remove a folder, even if an ending process still writes to it or folders are nested deeply."""

    def is_gone() -> bool:
        with contextlib.suppress(OSError):
            remove_tree(folder)
        return not folder.exists()

    eventually(is_gone)


def python_for(uid: int, folder: Path) -> str:
    """Return a Python with the same packages that this user may run, built from another of the same version."""
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        if not _is_same_version(candidate, uid):
            continue
        if candidate == sys.executable:
            return candidate
        environment = folder / "environment"
        subprocess.run([candidate, "-m", "venv", "--without-pip", str(environment)], check=True)
        (packages,) = environment.glob("lib/python*/site-packages")
        sources = [Path(trainyard.__file__).parents[1], sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        (packages / "of-the-tests.pth").write_text("".join(f"{source}\n" for source in sources))
        # A sandbox shows only the environment, and rules that run beside a program need numpy in it.
        for needed in Path(sysconfig.get_path("platlib")).glob("numpy*"):
            shutil.copytree(needed, packages / needed.name)
        return str(environment / "bin" / "python")
    pytest.skip("this machine has no Python of the tests' version that an ordinary user may start")


def trainee_of(yard: RunningYard) -> Trainee:
    """Return the first user of a yard, its administrator."""
    known = yard.credentials
    return Trainee(
        User(yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region)
    )


def _is_same_version(candidate: str, uid: int) -> bool:
    program = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    with contextlib.suppress(OSError):
        return subprocess.run([candidate, "-I", "-c", program], user=uid, check=False, cwd="/").returncode == 0
    return False
