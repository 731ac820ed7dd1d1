"""The result folders of several instances as one tree."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.results.failure import CannotRun, FailureKind

_MAX_DEPTH = 200
# Bytes of sparse files that take no space on the disk, but time to read.
_MAX_HOLE_BYTES = 64 * 1024**3
# The names of all entries are held in memory.
_MAX_ENTRIES = 500_000


@dataclass(frozen=True, slots=True)
class TreeItem:
    """An entry of the tree: its path in the tree, and its name in an open folder."""

    path: str
    folder: ConfinedFolder
    name: str
    mode: int

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)


class MergedTree:
    """Merges trees one after the other. The first tree with a name wins, but folders are merged.

    `clashes` counts the entries that were left out, and `clash` is the path of one of them.
    """

    def __init__(self) -> None:
        self.clashes = 0
        self.clash = ""
        # Whether each path of the tree is a folder.
        self._known: dict[str, bool] = {}
        self._hole_bytes = 0

    def add(self, folder: ConfinedFolder, above: str = "") -> Iterator[TreeItem]:
        """Yield what a tree adds, in the order of names, a folder before its entries. Items are valid until the next.

        Raises CannotRun for a tree that is too deep, too large, or nearly empty sparse files.
        """
        if above.count("/") > _MAX_DEPTH:
            raise CannotRun(f"Folders nested more than {_MAX_DEPTH} deep cannot be stored.", FailureKind.USER_ERROR)
        subfolders = []
        for name in self._names(folder):
            status = folder.status(name)
            if status is None:
                continue
            item = TreeItem(f"{above}{name}", folder, name, status.st_mode)
            self._count_holes(item.path, status)
            if self._is_new(item):
                yield item
            if item.is_folder and self._known[item.path]:
                subfolders.append(name)
        for name in subfolders:
            with folder.open_folder(name) as inner:
                yield from self.add(inner, f"{above}{name}/")

    def _is_new(self, item: TreeItem) -> bool:
        if item.path not in self._known:
            self._known[item.path] = item.is_folder
            return True
        if not (item.is_folder and self._known[item.path]):
            self.clashes += 1
            self.clash = self.clash or item.path
        return False

    def _names(self, folder: ConfinedFolder) -> list[str]:
        """The names in a folder, read up to the limit; CannotRun when there are more."""
        left = _MAX_ENTRIES - len(self._known)
        with os.scandir(folder.fileno()) as entries:
            names = sorted(entry.name for entry in islice(entries, left + 1))
        if len(names) > left:
            raise CannotRun(f"More than {_MAX_ENTRIES} files and folders cannot be stored.", FailureKind.USER_ERROR)
        return names

    def _count_holes(self, path: str, status: os.stat_result) -> None:
        self._hole_bytes += max(0, status.st_size - status.st_blocks * 512) if stat.S_ISREG(status.st_mode) else 0
        if self._hole_bytes > _MAX_HOLE_BYTES:
            raise CannotRun(
                f'"{path[:200]}" claims to have {status.st_size} bytes but is nearly empty, so it cannot be stored.',
                FailureKind.USER_ERROR,
            )
