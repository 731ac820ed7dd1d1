"""Finds the folders that a Python interpreter needs, without starting it.

An interpreter is reached through a chain of symbolic links: of a virtual environment, a version manager, the
installation. The program must see each link of the chain under the name that the previous link gives. It must see
nothing else around them, since version managers live in home folders.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

# What Python needs from a prefix that also holds other things.
_PYTHON_PARTS = ("bin", "include", "lib", "lib64", "pyvenv.cfg")
_MAX_LINKS = 40


def interpreter_folders(interpreter: Path, private: Sequence[Path] = ()) -> list[Path]:
    """Return the paths to show, each under its own name. Of a prefix that may hold more than Python, only parts."""
    shown: dict[Path, None] = {}
    for prefix in interpreter_prefixes(interpreter):
        for spelled in (prefix, prefix.resolve()):
            shown.update((path, None) for path in _visible_parts(spelled, private))
    return list(shown)


def interpreter_prefixes(interpreter: Path) -> Iterator[Path]:
    """Yield the prefixes in which the interpreter finds its library: of its environments and of the installation."""
    for executable in interpreter_links(interpreter):
        prefix = executable.parent.parent
        home = _home_of_environment(prefix / "pyvenv.cfg")
        if home is not None or _has_library(prefix):
            yield prefix
        if home is not None and _has_library(home.parent):
            yield home.parent


def interpreter_links(interpreter: Path) -> Iterator[Path]:
    """Yield the executable under each name of its chain of symbolic links, ending with the real file."""
    # resolve() would skip the intermediate names.
    path = Path(os.path.abspath(interpreter))
    for _ in range(_MAX_LINKS):
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
    yield from (prefix / name for name in _PYTHON_PARTS if (prefix / name).exists())


def _may_hold_more(prefix: Path, private: Sequence[Path]) -> bool:
    """Return True for folders that contain a private one, such as a home, and for top-level folders."""
    return len(prefix.parts) <= 2 or any(folder.is_relative_to(prefix) for folder in private)
