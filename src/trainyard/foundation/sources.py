"""Reads bytes by name, wherever they are: the files of a folder, the objects under a prefix.

Data that one process writes and another reads, locally or remotely, is read through a `ByteSource`. Names are relative
to it, with "/" between their parts. `trainyard.testing.sources` has the suite that every implementation must pass.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from trainyard.foundation.errors import NotFound, Unavailable


@dataclass(frozen=True, slots=True, order=True)
class SourceEntry:
    """A file or an object. `name` is relative to its folder."""

    name: str
    size: int


class ByteSource(Protocol):
    """Reads bytes by name, while others may write. Safe to use from any thread.

    A missing name raises NotFound; a source that cannot be reached now raises Unavailable.
    """

    @property
    def place(self) -> str:
        """The location, for messages: a path or an s3:// location."""
        ...

    def entries(self, folder: str = "", *, after: str = "") -> Sequence[SourceEntry]:
        """Return the entries directly in a folder, without folders, sorted by name, after the name `after`.

        A missing folder is empty.
        """
        ...

    def folders(self, folder: str = "", *, after: str = "") -> Sequence[str]:
        """Return the names of the folders directly in a folder, sorted, after the name `after`."""
        ...

    def size(self, name: str) -> int: ...

    def read(self, name: str, *, start: int = 0, size: int | None = None) -> bytes:
        """Return the bytes from `start` on, all of them or at most `size`; empty at the end."""
        ...


@runtime_checkable
class HasLocalFiles(Protocol):
    """A source whose bytes are local files, so that they can be mapped into memory."""

    def path(self, name: str) -> Path: ...


class FolderSource:
    """The files of a local folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def place(self) -> str:
        return str(self._root)

    def path(self, name: str) -> Path:
        return self._root / name

    def entries(self, folder: str = "", *, after: str = "") -> Sequence[SourceEntry]:
        try:
            with os.scandir(self._root / folder) as found:
                later = [entry for entry in found if entry.name > after and entry.is_file()]
            return sorted(SourceEntry(entry.name, entry.stat().st_size) for entry in later)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unavailable(folder, error) from error

    def folders(self, folder: str = "", *, after: str = "") -> Sequence[str]:
        try:
            with os.scandir(self._root / folder) as found:
                return sorted(entry.name for entry in found if entry.name > after and entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unavailable(folder, error) from error

    def size(self, name: str) -> int:
        try:
            return self.path(name).stat().st_size
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound("file", str(self.path(name))) from error
        except OSError as error:
            raise self._unavailable(name, error) from error

    def read(self, name: str, *, start: int = 0, size: int | None = None) -> bytes:
        try:
            with self.path(name).open("rb") as file:
                file.seek(start)
                return file.read(size)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound("file", str(self.path(name))) from error
        except OSError as error:
            raise self._unavailable(name, error) from error

    def _unavailable(self, name: str, error: OSError) -> Unavailable:
        return Unavailable(f"{self.path(name)} cannot be read: {error.strerror or error}.")
