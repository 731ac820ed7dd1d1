"""The objects below a location as a source of bytes, for formats that are read in place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainyard.foundation.locations import Location
from trainyard.foundation.sources import SourceEntry
from trainyard.objects.contract import Listing, ObjectAccess

# Of a listing, each with a thousand keys: as many files as a run of several weeks has.
_MAX_PAGES = 200


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """The objects of a store whose keys begin with that of `where` and a slash."""

    objects: ObjectAccess
    where: Location

    @property
    def place(self) -> str:
        return str(self.where)

    def entries(self, folder: str = "", *, after: str = "") -> Sequence[SourceEntry]:
        prefix = self._prefix(folder)
        found = [
            SourceEntry(each.key.removeprefix(prefix), each.size)
            for page in self._pages(prefix, after)
            for each in page.objects
            if each.key != prefix
        ]
        return sorted(found)

    def folders(self, folder: str = "", *, after: str = "") -> Sequence[str]:
        prefix = self._prefix(folder)
        pages = self._pages(prefix, f"{after}/" if after else "")
        found = [each.removeprefix(prefix).rstrip("/") for page in pages for each in page.prefixes]
        # The folder `after` is listed again because of the objects in it.
        return sorted(name for name in found if name > after)

    def size(self, name: str) -> int:
        return self.objects.info(self._location(name)).size

    def read(self, name: str, *, start: int = 0, size: int | None = None) -> bytes:
        with self.objects.open(self._location(name)) as reader:
            wanted = reader.info.size - start if size is None else min(size, reader.info.size - start)
            return reader.read(start, wanted) if wanted > 0 else b""

    def _pages(self, prefix: str, after: str) -> list[Listing]:
        return list_pages(
            lambda marker: self.objects.list_objects(self.where.bucket, prefix=prefix, delimiter="/", after=marker),
            after=prefix + after if after else "",
        )

    def _prefix(self, folder: str) -> str:
        key = self.where.key.rstrip("/")
        return "".join(f"{part}/" for part in (key, folder) if part)

    def _location(self, name: str) -> Location:
        return Location(self.where.bucket, self._prefix("") + name)


def list_pages(read_page: Callable[[str], Listing], *, after: str = "") -> list[Listing]:
    """Return the pages of a listing up to a limit that no run reaches by itself."""
    pages: list[Listing] = []
    marker: str | None = after
    while marker is not None and len(pages) < _MAX_PAGES:
        pages.append(read_page(marker))
        marker = pages[-1].next_after
    return pages
