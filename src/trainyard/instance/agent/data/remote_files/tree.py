"""The files and folders of a channel, built from the keys of its objects. They never change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from trainyard.foundation.locations import Location
from trainyard.instance.agent.data.remote_files.fuse import ROOT_NODE, FuseNode


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One version of an object. `number` counts the files of a channel in the order of its keys."""

    where: Location
    size: int
    etag: str
    number: int


class PathTaken(Exception):
    """The path of an object equals, or leads through, that of another one."""


@dataclass(slots=True)
class _TreeFolder:
    names: dict[bytes, int] = field(default_factory=dict)
    entries: Sequence[bytes] | None = None


class ChannelTree:
    """Filled once, then read by any thread. Nodes have the numbers that the kernel uses."""

    def __init__(self) -> None:
        self.files: list[RemoteFile] = []
        self.size_bytes = 0
        self._nodes: list[_TreeFolder | RemoteFile] = [_TreeFolder()]

    def add(self, path: str, where: Location, *, size: int, etag: str) -> None:
        """Add an object at a path; PathTaken when that clashes. The path of a folder's empty object ends in a slash."""
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
        inside.names[encoded] = self._add_node(file)

    def file(self, number: int) -> RemoteFile | None:
        node = self._nodes[number - ROOT_NODE]
        return node if isinstance(node, RemoteFile) else None

    def node(self, number: int) -> FuseNode:
        node = self._nodes[number - ROOT_NODE]
        return FuseNode(number, 0, True) if isinstance(node, _TreeFolder) else FuseNode(number, node.size, False)

    def child(self, number: int, name: bytes) -> FuseNode | None:
        folder = self._nodes[number - ROOT_NODE]
        inner = folder.names.get(name) if isinstance(folder, _TreeFolder) else None
        return None if inner is None else self.node(inner)

    def children(self, number: int, start: int) -> Iterator[tuple[bytes, FuseNode]]:
        """Yield the entries of a folder from a position on; none for a file."""
        folder = self._nodes[number - ROOT_NODE]
        if not isinstance(folder, _TreeFolder):
            return
        if folder.entries is None:
            folder.entries = list(folder.names)
        for name in islice(folder.entries, start, None):
            yield name, self.node(folder.names[name])

    def _make_folder(self, path: str) -> _TreeFolder:
        folder = self._nodes[0]
        assert isinstance(folder, _TreeFolder), "the root is a folder"
        for part in path.encode().split(b"/") if path else ():
            number = folder.names.get(part)
            if number is None:
                number = folder.names[part] = self._add_node(_TreeFolder())
            inner = self._nodes[number - ROOT_NODE]
            if not isinstance(inner, _TreeFolder):
                raise PathTaken(path)
            folder = inner
        return folder

    def _add_node(self, node: _TreeFolder | RemoteFile) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1 + ROOT_NODE
