"""The tensors folders of all instances of a job as one: each worker writes in that of its own instance."""

from collections.abc import Sequence
from pathlib import Path

from trainyard.foundation.sources import FolderSource, SourceEntry


class JoinedFolders:
    """A ByteSource over several folders that lie on this machine; the first that has a file counts."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._sources = [FolderSource(folder) for folder in folders]

    @property
    def place(self) -> str:
        return self._sources[0].place

    def path(self, name: str) -> Path:
        return self._of(name).path(name)

    def entries(self, folder: str = "", *, after: str = "") -> Sequence[SourceEntry]:
        found = {
            entry.name: entry for source in reversed(self._sources) for entry in source.entries(folder, after=after)
        }
        return sorted(found.values())

    def folders(self, folder: str = "", *, after: str = "") -> Sequence[str]:
        return sorted({name for source in self._sources for name in source.folders(folder, after=after)})

    def size(self, name: str) -> int:
        return self._of(name).size(name)

    def read(self, name: str, *, start: int = 0, size: int | None = None) -> bytes:
        return self._of(name).read(name, start=start, size=size)

    def _of(self, name: str) -> FolderSource:
        having = (source for source in self._sources if source.path(name).exists())
        return next(having, self._sources[0])
