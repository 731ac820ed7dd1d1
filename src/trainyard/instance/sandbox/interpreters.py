"""Which folders a Python interpreter needs, found without starting it.

An interpreter is reached through a chain of symbolic links: of a virtual environment, of a version manager, of the
installation. Each link of the chain must be there for the program, under the name that the link before it gives; and
nothing else around it, for version managers live in home folders.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

_PARTS = ("bin", "include", "lib", "lib64", "pyvenv.cfg")  # what is needed of a prefix that holds more than Python
_LONGEST_CHAIN = 40


def interpreter_folders(interpreter: Path, private: Sequence[Path] = ()) -> list[Path]:
    """The paths to show, each at its own name. A prefix that may hold more than Python is shown in parts."""
    shown: dict[Path, None] = {}
    for prefix in interpreter_prefixes(interpreter):
        for spelled in (prefix, prefix.resolve()):
            shown.update((path, None) for path in _visible_parts(spelled, private))
    return list(shown)


def interpreter_prefixes(interpreter: Path) -> Iterator[Path]:
    """The folders in which it finds its library: those of environments, and that of the installation."""
    for executable in interpreter_links(interpreter):
        prefix = executable.parent.parent
        home = _home_of_environment(prefix / "pyvenv.cfg")
        if home is not None or _has_library(prefix):
            yield prefix
        if home is not None and _has_library(home.parent):
            yield home.parent


def interpreter_links(interpreter: Path) -> Iterator[Path]:
    """The executable under each of its names, and each folder on the way that is itself a link taken apart."""
    path = Path(os.path.abspath(interpreter))  # not resolve(): the names matter
    for _ in range(_LONGEST_CHAIN):
        yield path
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))


def _home_of_environment(config: Path) -> Path | None:
    if not config.is_file():
        return None
    for line in config.read_text(errors="replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            return Path(value.strip())
    return None


def _has_library(prefix: Path) -> bool:
    return any(prefix.glob("lib*/python3*/os.py"))


def _visible_parts(prefix: Path, private: Sequence[Path]) -> Iterator[Path]:
    if not _may_hold_more(prefix.resolve(), private):
        yield prefix
        return
    yield from (prefix / name for name in _PARTS if (prefix / name).exists())


def _may_hold_more(prefix: Path, private: Sequence[Path]) -> bool:
    """True of folders that contain a private one, such as a home itself, and of all at the top of the file system."""
    return len(prefix.parts) <= 2 or any(folder.is_relative_to(prefix) for folder in private)
