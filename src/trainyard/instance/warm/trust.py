"""Decides whether an environment may be imported with the privileges of the yard, outside any sandbox.

A warm worker does that. So everything it executes must belong to root or to the yard's own user, and nobody else may be
able to change it. A worker never imports anything that belongs to a user's job.
"""

import functools
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trainyard.foundation.errors import TrainyardError
from trainyard.instance.sandbox.interpreters import interpreter_links, interpreter_prefixes

_EXECUTED = (".py", ".pyc", ".pth", ".so")
_MAX_ENTRIES = 1_000_000


class Untrusted(TrainyardError):
    """Another user could change what a worker would execute."""


def examine_environment(interpreter: Path) -> list[str]:
    """Examine the folders the interpreter may import from, with their contents, and return them; else `Untrusted`."""
    examination = _Examination()
    for link in interpreter_links(interpreter):
        examination.accept_path(link)
    for prefix in dict.fromkeys(interpreter_prefixes(interpreter)):
        examination.accept_path(prefix)
        if (prefix / "pyvenv.cfg").exists():
            examination.accept_path(prefix / "pyvenv.cfg")
        for library in _libraries(prefix):
            examination.accept_tree(library)
    return sorted(examination.trees)


def _libraries(prefix: Path) -> Iterator[Path]:
    """Yield the library folders. Debian keeps its own packages in `python3`, and administrators' in /usr/local."""
    places = [prefix, *([prefix / "local"] if prefix == Path("/usr") else [])]
    for place in places:
        yield from (path for path in sorted(place.glob("lib*/python3*")) if path.is_dir())


class _Examination:
    def __init__(self) -> None:
        self.trees: set[str] = set()
        self._accepted: set[str] = set()
        self._entries = 0

    def accept_tree(self, folder: Path) -> None:
        real = os.path.realpath(folder)
        if any(real == tree or real.startswith(f"{tree}/") for tree in self.trees):
            return
        self.accept_path(Path(real))
        self.trees.add(real)
        self._accept_entries(real)

    def accept_path(self, path: Path) -> None:
        """Accept a file or folder together with all folders above it."""
        for place in (*reversed(path.parents), path):
            self._accept_place(str(place))

    def _accept_place(self, place: str) -> None:
        if place in self._accepted:
            return
        about = os.lstat(place)
        # In a sticky folder only owners can rename and remove entries.
        is_sticky = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX
        _accept(place, about, others_may_write=bool(is_sticky))
        self._accepted.add(place)
        if stat.S_ISLNK(about.st_mode):
            self.accept_path(Path(os.path.realpath(place)))

    def _accept_entries(self, folder: str) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries += 1
                if self._entries > _MAX_ENTRIES:
                    raise Untrusted(f"{folder} has too many files to examine.")
                self._accept_entry(entry)

    def _accept_entry(self, entry: "os.DirEntry[str]") -> None:
        if entry.is_symlink():
            _accept(entry.path, entry.stat(follow_symlinks=False))
            real = Path(os.path.realpath(entry.path))
            if real.is_dir():
                self.accept_tree(real)
            elif real.exists():
                self.accept_path(real)
        elif entry.is_dir():
            _accept(entry.path, entry.stat(follow_symlinks=False))
            self._accept_entries(entry.path)
        elif entry.name.endswith(_EXECUTED) or ".so." in entry.name:
            _accept(entry.path, entry.stat(follow_symlinks=False))
            if entry.name.endswith(".pth"):
                self._accept_named(entry.path)

    def _accept_named(self, file: str) -> None:
        """Accept the folders that a .pth file adds to the import path."""
        for line in Path(file).read_text(errors="replace").splitlines():
            place = Path(file).parent / line.strip()
            if line.strip() and not line.startswith(("#", "import ", "import\t")) and os.path.isdir(place):
                self.accept_tree(place)


def _accept(path: str, about: os.stat_result, *, others_may_write: bool = False) -> None:
    if about.st_uid not in (0, os.geteuid()):
        raise Untrusted(f"{path} belongs to user {about.st_uid}.")
    if others_may_write or stat.S_ISLNK(about.st_mode):
        return
    if about.st_mode & 0o002 or (about.st_mode & 0o020 and not _is_private(about.st_gid)):
        raise Untrusted(f"Users other than its owner can change {path}.")


@functools.cache
def _is_private(gid: int) -> bool:
    """Return whether a group has no members except root and the yard's own user."""
    with suppress(KeyError):
        own = {"root", pwd.getpwuid(os.geteuid()).pw_name}
        primary = {user.pw_name for user in pwd.getpwall() if user.pw_gid == gid}
        return {*grp.getgrgid(gid).gr_mem, *primary} <= own
    return gid == os.getegid() == os.geteuid()
