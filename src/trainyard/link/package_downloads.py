"""The files of package indexes that the jobs of one user have downloaded, named by their SHA-256.

Only agents write here, and only what has the digest that its index names, so no job can put anything in the way of
another. The files lie in `downloads/` beside the user's environments.
"""

import hashlib
import os
import re
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from trainyard.foundation.disk import reserve_of
from trainyard.foundation.files import PRIVATE_FOLDER

DOWNLOADS = "downloads"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PackageDownloads:
    """The downloads beside some environments. Safe to use from any process and thread."""

    environments: Path

    def open(self, digest: str) -> BinaryIO | None:
        """Open a file that is there, and note that it was used."""
        with suppress(FileNotFoundError):
            file = self._file(digest).open("rb")
            os.utime(file.fileno())
            return file
        return None

    def writer(self, digest: str) -> "DownloadWriter":
        """Return a writer for the file with this digest; it must not be shared between threads."""
        folder = self.environments / DOWNLOADS
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        return DownloadWriter(folder, self._file(digest))

    def surplus(self, limit_bytes: int, *, unused_s: float | None = None) -> list[Path]:
        """Return the files that are idle or exceed the limit, counted from the last used one."""
        before = 0.0 if unused_s is None else time.time() - unused_s
        total, found = 0, []
        for used_at, size, path in sorted(self._files(), reverse=True):
            total += size
            if total > limit_bytes or used_at < before:
                found.append(path)
        return found

    def trim(self, limit_bytes: int, *, unused_s: float | None = None) -> None:
        """Remove what is surplus."""
        for path in self.surplus(limit_bytes, unused_s=unused_s):
            path.unlink(missing_ok=True)

    def size_bytes(self) -> int:
        """Return the size of all files."""
        return sum(size for _, size, _ in self._files())

    def _file(self, digest: str) -> Path:
        assert _DIGEST.fullmatch(digest), "a digest of SHA-256"
        return self.environments / DOWNLOADS / digest

    def _files(self) -> list[tuple[float, int, Path]]:
        """The time of the last use, the size and the path of each file. Others may be removed meanwhile."""
        found = []
        with suppress(FileNotFoundError):
            for path in (self.environments / DOWNLOADS).iterdir():
                with suppress(FileNotFoundError):
                    status = path.stat()
                    found.append((status.st_mtime, status.st_size, path))
        return found


class DownloadWriter:
    """Writes one file. It is there only after `commit`; a writer that is closed without one leaves nothing.

    A full disk makes the writer useless, but raises nothing: whoever downloads something does not depend on this.
    """

    def __init__(self, folder: Path, place: Path) -> None:
        self._place = place
        self._hash = hashlib.sha256()
        self._file: BinaryIO | None = None
        self._path = ""
        with suppress(OSError):
            if not reserve_of(folder).is_touched:
                descriptor, self._path = tempfile.mkstemp(prefix=".", dir=folder)
                self._file = os.fdopen(descriptor, "wb")

    def write(self, data: bytes) -> None:
        if self._file is None:
            return
        self._hash.update(data)
        try:
            self._file.write(data)
        except OSError:
            self.close()

    def commit(self) -> bool:
        """Keep the file if it has the right digest; return whether it has."""
        if self._file is None or self._hash.hexdigest() != self._place.name:
            return False
        try:
            self._file.close()
            # Before a crash could lose its content, its digest is checked by every installer.
            Path(self._path).replace(self._place)
        except OSError:
            return False
        self._path = ""
        return True

    def close(self) -> None:
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
            if self._path:
                Path(self._path).unlink(missing_ok=True)
        self._file, self._path = None, ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
