"""The files and folders of a channel, made of the keys of its objects. Nothing of it changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from trainyard.foundation.locations import Location
from trainyard.instance.agent.remote_files.protocol import ROOT_NODE, Node


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One version of an object. `number` counts the files of a channel in the order of its keys."""

    where: Location
    size: int
    etag: str
    number: int


class PathTaken(Exception):
    """The path of an object is, or leads through, that of another one."""


@dataclass(slots=True)
class _Folder:
    names: dict[bytes, int] = field(default_factory=dict)
    listed: Sequence[bytes] | None = None


class Tree:
    """Filled once, then read by any thread. Nodes have the numbers by which the kernel knows them."""

    def __init__(self) -> None:
        self.files: list[RemoteFile] = []
        self.size_bytes = 0
        self._nodes: list[_Folder | RemoteFile] = [_Folder()]

    def add(self, path: str, where: Location, *, size: int, etag: str) -> None:
        """Put an object at a path, which for the empty object of a folder ends in a slash; or raise PathTaken."""
        folder, _, name = path.rpartition("/")
        inside = self._make_folder(folder)
        if not name:
            return
        encoded = name.encode()
        if encoded in inside.names:
            raise PathTaken(path)
        file = RemoteFile(where, size, etag, len(self.files))
        self.files.append(file)
        self.size_bytes += size
        inside.names[encoded] = self._number(file)

    def file(self, number: int) -> RemoteFile | None:
        found = self._nodes[number - ROOT_NODE]
        return found if isinstance(found, RemoteFile) else None

    def node(self, number: int) -> Node:
        found = self._nodes[number - ROOT_NODE]
        return Node(number, 0, True) if isinstance(found, _Folder) else Node(number, found.size, False)

    def child(self, number: int, name: bytes) -> Node | None:
        folder = self._nodes[number - ROOT_NODE]
        inner = folder.names.get(name) if isinstance(folder, _Folder) else None
        return None if inner is None else self.node(inner)

    def children(self, number: int, start: int) -> Iterator[tuple[bytes, Node]]:
        """What lies in a folder from some place of its list on; nothing for a file."""
        folder = self._nodes[number - ROOT_NODE]
        if not isinstance(folder, _Folder):
            return
        if folder.listed is None:
            folder.listed = list(folder.names)
        for name in islice(folder.listed, start, None):
            yield name, self.node(folder.names[name])

    def _make_folder(self, path: str) -> _Folder:
        folder = self._nodes[0]
        assert isinstance(folder, _Folder), "the root is a folder"
        for part in path.encode().split(b"/") if path else ():
            number = folder.names.get(part)
            if number is None:
                number = folder.names[part] = self._number(_Folder())
            inner = self._nodes[number - ROOT_NODE]
            if not isinstance(inner, _Folder):
                raise PathTaken(path)
            folder = inner
        return folder

    def _number(self, node: _Folder | RemoteFile) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1 + ROOT_NODE
