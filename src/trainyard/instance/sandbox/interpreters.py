"""Finds the folders that a Python interpreter needs, without starting it.

An interpreter is reached through a chain of symbolic links: of a virtual environment, a version manager, the
installation. The program must see each link of the chain under the name that the previous link gives. It must see
nothing else around them, since version managers live in home folders.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

# What Python needs from a prefix that also holds other things.
_PYTHON_PARTS = ("bin", "include", "lib", "lib64", "pyvenv.cfg")
_MAX_LINKS = 40
# What an installer changes in a prefix that also holds other things. The last ones only if everybody may read them.
_INSTALLED_PARTS = ("bin", "lib/python{}", "lib64/python{}")
_DATA_PARTS = ("share", "include", "etc", "man")
_SYSTEM_PREFIXES = (Path("/usr"), Path("/usr/local"))
_MAX_DATA_ENTRIES = 500
_VERSION = re.compile(r"python(3\.\d+t?)")


def private_folders(hidden: Sequence[Path]) -> list[Path]:
    """Return the folders that are never shown because Python is somewhere in them: hidden ones, and the home."""
    # Path.home() would fail for a user without a home.
    return [*hidden, Path(os.path.expanduser("~"))]


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


def changeable_folders(interpreter: Path, private: Sequence[Path] = ()) -> list[Path]:
    """Return the folders that an installer changes in the environment of the interpreter.

    That is the whole prefix, or parts of one that may hold more than Python. Debian's Python installs below /usr/local.
    """
    prefix = next(interpreter_prefixes(interpreter), None)
    version = _VERSION.match(os.path.basename(os.path.realpath(interpreter)))
    if prefix is None:
        return []
    if prefix not in _SYSTEM_PREFIXES and not _may_hold_more(prefix.resolve(), private):
        return [prefix]
    if version is None:
        return []
    if prefix == Path("/usr") and (prefix / "lib/python3/dist-packages").is_dir():
        prefix = prefix / "local"
    parts = [prefix / part.format(version[1]) for part in _INSTALLED_PARTS]
    data = [prefix / part for part in _DATA_PARTS]
    return [
        *(part for part in parts if part.is_dir() and not part.parent.is_symlink()),
        *(part for part in data if part.is_dir() and not part.is_symlink() and _is_public(part)),
    ]


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


def _is_public(folder: Path) -> bool:
    """Whether everybody may read all that is in a small folder."""
    left = _MAX_DATA_ENTRIES
    for above, folders, files in os.walk(folder):
        left -= len(folders) + len(files)
        for name in (*folders, *files):
            mode = os.lstat(os.path.join(above, name)).st_mode
            needed = 0o005 if stat.S_ISDIR(mode) else 0o004
            if mode & needed != needed:
                return False
        if left < 0:
            return False
    return True


def _may_hold_more(prefix: Path, private: Sequence[Path]) -> bool:
    """Return True for folders that contain a private one, such as a home, and for top-level folders."""
    return len(prefix.parts) <= 2 or any(folder.is_relative_to(prefix) for folder in private)
