"""The objects under a prefix as a byte source, for formats that are read in place."""

from collections.abc import Iterator, Sequence

from trainyard.foundation.locations import Location
from trainyard.foundation.sources import SourceEntry
from trainyard.objects.contract import Listing, ObjectStore


class ObjectSource:
    """The objects below a prefix of a bucket; `below.key` is the prefix, with or without a final "/"."""

    def __init__(self, store: ObjectStore, below: Location) -> None:
        self._store, self._below = store, below
        self._prefix = f"{below.key.rstrip('/')}/" if below.key.strip("/") else ""

    @property
    def place(self) -> str:
        return str(self._below)

    def entries(self, folder: str = "", *, after: str = "") -> Sequence[SourceEntry]:
        prefix = self._folder(folder)
        found = [each for page in self._pages(prefix, after) for each in page.objects]
        return [SourceEntry(each.key.removeprefix(prefix), each.size) for each in found if each.key != prefix]

    def folders(self, folder: str = "", *, after: str = "") -> Sequence[str]:
        prefix = self._folder(folder)
        pages = self._pages(prefix, f"{after}/" if after else "")
        found = [each.removeprefix(prefix).rstrip("/") for page in pages for each in page.prefixes]
        return [name for name in found if name > after]

    def size(self, name: str) -> int:
        return self._store.info(self._location(name)).size

    def read(self, name: str, *, start: int = 0, size: int | None = None) -> bytes:
        with self._store.open(self._location(name)) as reader:
            left = max(0, reader.info.size - start)
            return reader.read(start, left if size is None else min(size, left)) if left else b""

    def _location(self, name: str) -> Location:
        return Location(self._below.bucket, self._prefix + name)

    def _folder(self, folder: str) -> str:
        return self._prefix + (f"{folder}/" if folder else "")

    def _pages(self, prefix: str, after: str) -> Iterator[Listing]:
        start: str | None = prefix + after if after else ""
        while start is not None:
            page = self._store.list_objects(self._below.bucket, prefix=prefix, delimiter="/", after=start)
            yield page
            start = page.next_after
