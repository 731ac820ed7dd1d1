"""The tensors folders of all instances as one source; each worker writes to the folder of its own instance."""

from collections.abc import Sequence
from pathlib import Path

from trainyard.foundation.sources import FolderSource, SourceEntry


class JoinedFolders:
    """A ByteSource over several folders on this machine. If several have a file, the first one wins."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._sources = [FolderSource(folder) for folder in folders]

    @property
    def place(self) -> str:
        return self._sources[0].place

    def path(self, name: str) -> Path:
        return self._source_with(name).path(name)

    def entries(self, folder: str = "", *, after: str = "") -> Sequence[SourceEntry]:
        found = {
            entry.name: entry for source in reversed(self._sources) for entry in source.entries(folder, after=after)
        }
        return sorted(found.values())

    def folders(self, folder: str = "", *, after: str = "") -> Sequence[str]:
        return sorted({name for source in self._sources for name in source.folders(folder, after=after)})

    def size(self, name: str) -> int:
        return self._source_with(name).size(name)

    def read(self, name: str, *, start: int = 0, size: int | None = None) -> bytes:
        return self._source_with(name).read(name, start=start, size=size)

    def _source_with(self, name: str) -> FolderSource:
        sources = (source for source in self._sources if source.path(name).exists())
        return next(sources, self._sources[0])
