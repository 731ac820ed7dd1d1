"""The packages that a job brings with its requirements.txt, installed in its sandbox by its own Python."""

import stat
from pathlib import Path

from trainyard.instance.agent.layout import Owner
from trainyard.link.contract import ProgramSpec

_FOLDER = ".trainyard"  # under /opt/ml, so that its paths are the same for everything that runs in the sandbox
_OVERLAY = f"{_FOLDER}/environment"
_INSTALLER = f"{_FOLDER}/installer.py"


def has_requirements(program: ProgramSpec, code: Path) -> bool:
    """Whether a Python program brings a list of packages; a link is not followed, for it may point anywhere."""
    try:
        mode = (code / "requirements.txt").lstat().st_mode
    except FileNotFoundError:
        return False
    return program.entry_point.endswith(".py") and stat.S_ISREG(mode)


def prepare_installation(ml: Path, owner: Owner) -> None:
    """Put the installer where the program's sandbox sees it."""
    folder = ml / _FOLDER
    folder.mkdir(exist_ok=True)
    # As a file, not as a module: what it imports is no concern of the agent's.
    (ml / _INSTALLER).write_bytes(Path(__file__).with_name("installer.py").read_bytes())
    owner.take_tree(folder)


def installation_argv(interpreter: str, seen_as: str) -> tuple[str, ...]:
    """The command that installs, where the ml folder is seen as `seen_as`."""
    paths = (f"{seen_as}/{_INSTALLER}", f"{seen_as}/{_OVERLAY}", f"{seen_as}/code/requirements.txt")
    return (interpreter, "-I", *paths)


def overlay_interpreter(seen_as: str) -> str:
    """The Python that sees what was installed."""
    return f"{seen_as}/{_OVERLAY}/bin/python"
