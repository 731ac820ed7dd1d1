"""Scans a folder that a program writes to."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from trainyard.foundation.confined import ConfinedFolder

MAX_FILES = 100_000
MAX_DEPTH = 64

NOT_FILES = "Links, pipes, sockets and devices"
INVALID_KEYS = "Files whose names are too long for a key or are not UTF-8"
TOO_DEEP = f"Folders nested more than {MAX_DEPTH} deep"


class FileStamp(NamedTuple):
    """Identifies the content of a file, as far as its status can."""

    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


@dataclass(slots=True)
class FolderScan:
    """All files by their paths in the folder. `skipped` has an example of each kind of entry that is skipped.

    A scan that is not complete may lack files that exist.
    """

    files: dict[str, FileStamp] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    is_complete: bool = True
    has_too_many_files: bool = False

    def skip(self, kind: str, path: str) -> None:
        self.skipped.setdefault(kind, os.fsencode(path)[:200].decode(errors="replace"))


def scan_folder(
    folder: ConfinedFolder,
    *,
    key_bytes: int,
    on_folder: Callable[[int], None],
    selects: Callable[[str], bool] | None = None,
) -> FolderScan:
    """Scan everything below a folder without following links. `on_folder` gets a descriptor of each folder.

    Files that vanish meanwhile are skipped. Paths of more than `key_bytes` cannot be keys. With `selects`, only files
    that it selects by their paths count, and nothing else is mentioned.
    """
    scan = FolderScan()
    _FolderWalk(scan, key_bytes, on_folder, selects).enter(folder, "", 0)
    return scan


@dataclass(frozen=True, slots=True)
class _FolderWalk:
    scan: FolderScan
    key_bytes: int
    on_folder: Callable[[int], None]
    selects: Callable[[str], bool] | None = None

    def enter(self, folder: ConfinedFolder, prefix: str, depth: int) -> None:
        self.on_folder(folder.fileno())
        inner: list[str] = []
        with os.scandir(folder.fileno()) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    inner.append(entry.name)
                elif stat.S_ISREG(status.st_mode):
                    self._add_file(prefix + entry.name, FileStamp.of(status))
                elif self.selects is None:
                    self.scan.skip(NOT_FILES, prefix + entry.name)
        for name in inner:
            self._descend(folder, name, prefix=prefix, depth=depth + 1)

    def _add_file(self, path: str, stamp: FileStamp) -> None:
        if self.selects is not None and not self.selects(path):
            return
        if len(self.scan.files) >= MAX_FILES:
            self.scan.is_complete, self.scan.has_too_many_files = False, True
        elif not _can_be_key(path, self.key_bytes):
            self.scan.skip(INVALID_KEYS, path)
        else:
            self.scan.files[path] = stamp

    def _descend(self, folder: ConfinedFolder, name: str, *, prefix: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            self.scan.skip(TOO_DEEP, prefix + name)
            return
        try:
            inner = folder.open_folder(name)
        except FileNotFoundError:
            return
        except OSError:
            # A link has replaced it, or it cannot be read.
            self.scan.is_complete = False
            return
        with inner:
            self.enter(inner, f"{prefix}{name}/", depth)


def _can_be_key(path: str, key_bytes: int) -> bool:
    try:
        return len(path.encode()) <= key_bytes
    except UnicodeEncodeError:
        return False
