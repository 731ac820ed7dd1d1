"""What lies in a folder that a program writes, at one moment."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from trainyard.foundation.confined import ConfinedFolder

MOST_FILES = 100_000
DEEPEST = 64

NO_FILES = "Links, pipes, sockets and devices"
NO_KEYS = "Files whose names are too long for a key or are not UTF-8"
TOO_DEEP = f"Folders nested more than {DEEPEST} deep"


class Look(NamedTuple):
    """What tells one content of a file from another, as far as the file system can."""

    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        return cls(found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)


@dataclass(slots=True)
class Scan:
    """All files by their paths in the folder. `skipped` has an example of each sort of thing that is passed over.

    One that is not whole may lack files that are there.
    """

    files: dict[str, Look] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    is_whole: bool = True
    is_too_much: bool = False  # more files than are kept in step

    def skip(self, sort: str, path: str) -> None:
        self.skipped.setdefault(sort, os.fsencode(path)[:200].decode(errors="replace"))


def scan_folder(folder: ConfinedFolder, *, key_bytes: int, on_folder: Callable[[int], None]) -> Scan:
    """Look at everything below a folder; no link is followed. `on_folder` gets a descriptor of each folder.

    What vanishes meanwhile is passed over. Paths of more than `key_bytes` cannot be keys.
    """
    scan = Scan()
    _Walk(scan, key_bytes, on_folder).enter(folder, "", 0)
    return scan


@dataclass(frozen=True, slots=True)
class _Walk:
    scan: Scan
    key_bytes: int
    on_folder: Callable[[int], None]

    def enter(self, folder: ConfinedFolder, prefix: str, depth: int) -> None:
        self.on_folder(folder.fileno())
        inner: list[str] = []
        with os.scandir(folder.fileno()) as entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(found.st_mode):
                    inner.append(entry.name)
                elif stat.S_ISREG(found.st_mode):
                    self._take(prefix + entry.name, Look.of(found))
                else:
                    self.scan.skip(NO_FILES, prefix + entry.name)
        for name in inner:
            self._descend(folder, name, prefix=prefix, depth=depth + 1)

    def _take(self, path: str, look: Look) -> None:
        if len(self.scan.files) >= MOST_FILES:
            self.scan.is_whole, self.scan.is_too_much = False, True
        elif not _can_be_key(path, self.key_bytes):
            self.scan.skip(NO_KEYS, path)
        else:
            self.scan.files[path] = look

    def _descend(self, folder: ConfinedFolder, name: str, *, prefix: str, depth: int) -> None:
        if depth > DEEPEST:
            self.scan.skip(TOO_DEEP, prefix + name)
            return
        try:
            inner = folder.open_folder(name)
        except FileNotFoundError:
            return
        except OSError:  # a link has taken its place, or it cannot be read
            self.scan.is_whole = False
            return
        with inner:
            self.enter(inner, f"{prefix}{name}/", depth)


def _can_be_key(path: str, key_bytes: int) -> bool:
    try:
        return len(path.encode()) <= key_bytes
    except UnicodeEncodeError:
        return False
