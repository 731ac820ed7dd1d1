"""What a power cut would leave of a folder at every moment of an operation.

It records the calls that order writes to a disk (fsync, fdatasync, link, rename, unlink, folder sync). Only syncs make
bytes or names durable here. A real disk may keep more, in any order, so two extremes are tested: nothing that was not
synced is left, or every name is left without its bytes. What is true of both at every moment, and of the first after
the operation has returned, is true of every power cut.
"""

import ctypes
import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
Tree = dict[str, "bytes | Tree"]

# Python does not see the calls of SQLite, so its files count as synced. Another test asserts that they are.
_OF_SQLITE = (".sqlite", ".sqlite-wal")


@dataclass(eq=False)
class _File:
    seen: bytes = b""
    synced: bytes = b""


@dataclass(eq=False)
class _Folder:
    names: "dict[str, _File | _Folder]" = field(default_factory=dict)
    synced: "dict[str, _File | _Folder]" = field(default_factory=dict)


@dataclass(frozen=True)
class Moment:
    """The content of a disk if the power were cut right after a call."""

    after: str
    only_synced: Tree
    all_names: Tree


class DiskRecorder:
    """Records what happens below a folder. Everything in it counts as durable at first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._nodes: dict[int, _File | _Folder] = {}
        self._written: list[str] = []
        self._one_at_a_time = threading.Lock()
        self.moments: list[Moment] = []
        self._look()
        self._sync_all()
        self.moments.clear()

    def run(self, operation: Callable[[], T]) -> T:
        with pytest.MonkeyPatch.context() as patch:
            self._wrap(patch)
            result = operation()
        self._look()
        self._remember("return")
        return result

    @property
    def order(self) -> list[str]:
        """Return every call in order, with the writes before it."""
        return [moment.after for moment in self.moments]

    def cut_power(self, target: Path) -> Path:
        """Create the folder that is left when the power is cut after the operation has returned."""
        return lay_out(self.moments[-1].only_synced, target)

    def _wrap(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._recorded(name, getattr(os, name), self._sync))
        for name in ("link", "rename", "replace", "unlink", "remove", "rmdir"):
            patch.setattr(os, name, self._recorded(name, getattr(os, name), None))
        patch.setattr(os, "sync", self._recorded("sync", os.sync, self._sync_all))
        patch.setattr(ctypes, "CDLL", self._library())

    def _recorded(self, name: str, call: Callable[..., T], effect: Callable[..., None] | None) -> Callable[..., T]:
        def wrapper(*arguments: Any, **options: Any) -> T:
            with self._one_at_a_time:
                self._look()
                result = call(*arguments, **options)
                if effect is not None:
                    effect(*arguments)
                self._look()
                self._remember(f"{name} {' '.join(map(_shown, arguments))}".rstrip())
                return result

        return wrapper

    def _library(self) -> type[ctypes.CDLL]:
        recorder = self

        class Library(ctypes.CDLL):
            def __getattr__(self, name: str) -> Any:
                found = super().__getattr__(name)
                if name != "syncfs":
                    return found
                return recorder._recorded(name, found, lambda _: recorder._sync_all())

        return Library

    def _sync(self, descriptor: int) -> None:
        node = self._nodes.get(os.fstat(descriptor).st_ino)
        if isinstance(node, _File):
            node.synced = Path(f"/proc/self/fd/{descriptor}").read_bytes()
        elif node is not None:
            node.synced = dict(node.names)

    def _sync_all(self) -> None:
        for node in self._nodes.values():
            if isinstance(node, _File):
                node.synced = node.seen
            else:
                node.synced = dict(node.names)

    def _look(self) -> None:
        """Read the current state. A new file may get the inode number of a removed one."""
        known, self._nodes = self._nodes, {}
        self._written = []
        self._seen(self._root, known)
        for name in self._written:
            self._remember(f"write {name}")

    def _seen(self, path: Path, known: "dict[int, _File | _Folder]") -> "_File | _Folder":
        told = path.lstat()
        is_folder = stat.S_ISDIR(told.st_mode)
        node = self._nodes.get(told.st_ino) or known.get(told.st_ino)
        if node is None or isinstance(node, _Folder) != is_folder:
            node = _Folder() if is_folder else _File()
        self._nodes[told.st_ino] = node
        if isinstance(node, _Folder):
            node.names = {each.name: self._seen(each, known) for each in _entries(path)}
            node.synced = _without_sqlite(node.synced) | _of_sqlite(node.names)
            return node
        now = path.read_bytes()
        if now != node.seen:
            self._written.append(path.name)
            node.seen = now
        if path.name.endswith(_OF_SQLITE):
            node.synced = now
        return node

    def _remember(self, call: str) -> None:
        top = self._nodes[self._root.stat().st_ino]
        assert isinstance(top, _Folder)
        only_synced = _tree(top, lambda folder: folder.synced)
        self.moments.append(Moment(call, only_synced, _tree(top, lambda folder: folder.names)))


def lay_out(tree: Tree, target: Path) -> Path:
    """Create a folder with what a power cut left."""
    target.mkdir()
    for name, content in tree.items():
        if isinstance(content, bytes):
            (target / name).write_bytes(content)
        else:
            lay_out(content, target / name)
    return target


def power_cuts(recorder: DiskRecorder, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield every folder that a power cut during the operation could leave, with the first call before it."""
    known: list[Tree] = []
    for moment in recorder.moments:
        for tree in (moment.only_synced, moment.all_names):
            if tree not in known:
                known.append(tree)
                yield moment.after, lay_out(tree, folder / f"left-{len(known)}")


def _tree(folder: _Folder, names: "Callable[[_Folder], dict[str, _File | _Folder]]") -> Tree:
    return {
        name: node.synced if isinstance(node, _File) else _tree(node, names) for name, node in names(folder).items()
    }


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder without the shared memory of SQLite, which is created again after a crash."""
    return [path for path in sorted(folder.iterdir()) if not path.name.endswith("-shm")]


def _of_sqlite(names: "dict[str, _File | _Folder]") -> "dict[str, _File | _Folder]":
    return {name: node for name, node in names.items() if name.endswith(_OF_SQLITE)}


def _without_sqlite(names: "dict[str, _File | _Folder]") -> "dict[str, _File | _Folder]":
    return {name: node for name, node in names.items() if not name.endswith(_OF_SQLITE)}


def _shown(argument: object) -> str:
    if isinstance(argument, int):
        return Path(f"/proc/self/fd/{argument}").readlink().name
    return Path(os.fsdecode(argument)).name if isinstance(argument, str | bytes | os.PathLike) else str(argument)
