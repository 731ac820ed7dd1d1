"""Copies of the agent's code, so that an upgrade does not change the code of agents that run.

Each copy is a folder named for the version and for what is in it. A copy that no agent holds and that is not the
current one is removed.
"""

import compileall
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard import __version__
from trainyard.foundation.files import alone_in
from trainyard.foundation.syncing import sync_file_system
from trainyard.link.holds import hold

# The parts of the package that run on an instance, and the modules for programs there.
PARTS = ("foundation", "formats", "link", "objects", "insight", "instance")
MODULES = ("__init__.py", "data.py", "hook.py", "parameter_server.py", "trial.py")

PACKAGE = Path(__file__).parents[2]

# Where the package was sent to this machine, the folder beside it with what it needs and the machine does not have.
LIBRARIES = "trainyard_libraries"

# The programs that lie at the top of a copy: one becomes an agent, the other forks agents.
_START, _NURSE = Path(__file__).with_name("start.py"), Path(__file__).with_name("nurse.py")


@dataclass(frozen=True, slots=True)
class AgentCode:
    """One copy."""

    folder: Path

    @property
    def start(self) -> Path:
        """The program that becomes an agent."""
        return self.folder / _START.name

    @property
    def nurse(self) -> Path:
        """The program that forks agents."""
        return self.folder / _NURSE.name

    @property
    def in_use(self) -> Path:
        """Held by each agent that runs from this copy."""
        return self.folder / "in-use"


def ensure_copy(agents: Path, package: Path = PACKAGE) -> AgentCode:
    """The copy of the code that is installed now, made if it is not there; others that are not in use are removed."""
    agents.mkdir(parents=True, exist_ok=True)
    current = AgentCode(agents / f"{__version__}-{_fingerprint(package)}")
    with alone_in(agents):  # or one would take for left over what another is making
        if not current.start.exists():
            _make(current, package)
        for folder in agents.iterdir():
            if folder != current.folder:
                _remove_unless_used(AgentCode(folder))
    return current


def sources(package: Path, parts: Sequence[str] = PARTS) -> Iterator[Path]:
    """The files of some parts of the package, and the modules for programs."""
    yield from (package / name for name in MODULES)
    for part in parts:
        for path in sorted((package / part).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _fingerprint(package: Path) -> str:
    digest = hashlib.sha256(_START.read_bytes() + _NURSE.read_bytes())
    for path in sources(package):
        digest.update(f"{path.relative_to(package)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    for path in sorted(package.with_name(LIBRARIES).glob("*")):  # names of distributions have their versions
        digest.update(f"{path.name}\0".encode())
    return digest.hexdigest()[:12]


def _make(code: AgentCode, package: Path) -> None:
    """Laid out beside its place and then renamed, so that a copy is whole or absent, also after a power cut."""
    staging = Path(tempfile.mkdtemp(prefix=".new-", dir=code.folder.parent))
    for path in sources(package):
        target = staging / "trainyard" / path.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for program in (_START, _NURSE):
        shutil.copyfile(program, staging / program.name)
    if package.with_name(LIBRARIES).is_dir():
        shutil.copytree(package.with_name(LIBRARIES), staging / LIBRARIES)
    compileall.compile_dir(staging, quiet=2, stripdir=str(staging))
    shutil.rmtree(code.folder, ignore_errors=True)  # what a removal that was cut short has left of it
    sync_file_system(staging)
    staging.rename(code.folder)


def _remove_unless_used(code: AgentCode) -> None:
    descriptor = hold(code.in_use)
    if descriptor is None:
        return
    try:
        shutil.rmtree(code.folder, ignore_errors=True)
    finally:
        os.close(descriptor)
