"""Copies of the agent's code, so that an upgrade does not change the code of running agents.

Each copy is a folder named after the version and a fingerprint of its content. A copy that no agent holds is removed,
unless it is the current one.
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
from trainyard.foundation.file_system_sync import sync_file_system
from trainyard.foundation.files import lock_folder
from trainyard.link.file_locks import hold

# The parts of the package that run on an instance, with what scripts use of the SDK, and the modules for programs.
PARTS = ("foundation", "formats", "link", "objects", "insight", "instance", "experiments", "_sdk/experiments")
MODULES = ("__init__.py", "data.py", "hook.py", "parameter_server.py", "trial.py")

PACKAGE = Path(__file__).parents[2]

# If the package was sent to this machine, the folder next to it with libraries that the machine does not have.
LIBRARIES = "trainyard_libraries"

# The programs at the top of a copy: one becomes an agent, the other forks agents.
_START, _FORK_SERVER = Path(__file__).with_name("start.py"), Path(__file__).with_name("fork_server.py")


@dataclass(frozen=True, slots=True)
class AgentCode:
    """One copy of the agent's code."""

    folder: Path

    @property
    def agent_program(self) -> Path:
        """The program that becomes an agent."""
        return self.folder / _START.name

    @property
    def fork_server(self) -> Path:
        """The program that forks agents."""
        return self.folder / _FORK_SERVER.name

    @property
    def lock_file(self) -> Path:
        """Held by each agent that runs from this copy."""
        return self.folder / "in-use"


def ensure_agent_code(agents: Path, package: Path = PACKAGE) -> AgentCode:
    """Return a copy of the installed code, made if need be, and remove the other copies that are not in use."""
    agents.mkdir(parents=True, exist_ok=True)
    current = AgentCode(agents / f"{__version__}-{_fingerprint(package)}")
    # Without the lock, one process would remove what another is making.
    with lock_folder(agents):
        if not current.agent_program.exists():
            _create_copy(current, package)
        for folder in agents.iterdir():
            if folder != current.folder:
                _remove_unless_used(AgentCode(folder))
    return current


def package_files(package: Path, parts: Sequence[str] = PARTS) -> Iterator[Path]:
    """Yield the files of some parts of the package, and the modules for programs."""
    yield from (package / name for name in MODULES)
    for part in parts:
        for path in sorted((package / part).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _fingerprint(package: Path) -> str:
    digest = hashlib.sha256(_START.read_bytes() + _FORK_SERVER.read_bytes())
    for path in package_files(package):
        digest.update(f"{path.relative_to(package)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    # The names of distributions contain their versions.
    for path in sorted(package.with_name(LIBRARIES).glob("*")):
        digest.update(f"{path.name}\0".encode())
    return digest.hexdigest()[:12]


def _create_copy(code: AgentCode, package: Path) -> None:
    """Write the copy to a staging folder and rename that, so that a copy is whole or absent, even after a power cut."""
    staging = Path(tempfile.mkdtemp(prefix=".new-", dir=code.folder.parent))
    for path in package_files(package):
        target = staging / "trainyard" / path.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for program in (_START, _FORK_SERVER):
        shutil.copyfile(program, staging / program.name)
    if package.with_name(LIBRARIES).is_dir():
        shutil.copytree(package.with_name(LIBRARIES), staging / LIBRARIES)
    compileall.compile_dir(staging, quiet=2, stripdir=str(staging))
    # An interrupted removal may have left something.
    shutil.rmtree(code.folder, ignore_errors=True)
    sync_file_system(staging)
    staging.rename(code.folder)


def _remove_unless_used(code: AgentCode) -> None:
    descriptor = hold(code.lock_file)
    if descriptor is None:
        return
    try:
        shutil.rmtree(code.folder, ignore_errors=True)
    finally:
        os.close(descriptor)
