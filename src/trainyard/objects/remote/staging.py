"""Bodies on their way to the remote: in memory while small, in a nameless local file when not."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

from trainyard.foundation.disk import require_room, reserve_of
from trainyard.foundation.errors import TrainyardError
from trainyard.objects.checksums import ContentDigests
from trainyard.objects.contract import ANY_STATE, Checksum, ChecksumAlgorithm, Precondition, Written
from trainyard.objects.datafiles import explain
from trainyard.objects.remote.bucket import SMALL, Body

_CHUNK = 1 << 20


class Staged:
    """A body that is collected and counted. Nothing of it is left after `close`, nor after a crash."""

    def __init__(self, folder: Path, algorithms: Sequence[ChecksumAlgorithm] = ()) -> None:
        self.digests = ContentDigests(algorithms)
        self._folder = folder
        self._file: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(SMALL, dir=str(folder))  # noqa: SIM115

    @property
    def size(self) -> int:
        return self.digests.size

    def write(self, data: bytes) -> None:
        if self.size + len(data) > SMALL:
            require_room(reserve_of(self._folder), len(data))
        try:
            self._file.write(data)
        except OSError as error:
            raise explain(error) from error
        self.digests.update(data)

    def fill(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            self.write(chunk)

    def chunks(self) -> Iterator[bytes]:
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK):
            yield chunk

    def body(self) -> Body:
        self._file.seek(0)
        return self._file.read() if self.size <= SMALL else cast(BinaryIO, self._file)

    def part(self, offset: int, size: int) -> "StagedPart":
        """Some bytes of a body that lies in a file, to be read beside others."""
        assert self.size > SMALL, "a small body is in memory"
        self._file.flush()
        return StagedPart(self._file.fileno(), offset, min(size, self.size - offset))

    def close(self) -> None:
        self._file.close()


class StagedPart:
    """A piece of a staged body, as a file that is read once from front to back."""

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor
        self._place, self._end = offset, offset + size

    def read(self, size: int = -1) -> bytes:
        left = self._end - self._place
        data = os.pread(self._descriptor, left if size < 0 else min(size, left), self._place)
        self._place += len(data)
        return data


class StagedWriter:
    """Collects a body here; `record` then sends it to the remote and tells what became of it."""

    def __init__(
        self,
        staged: Staged,
        *,
        record: Callable[[Staged, Written, Precondition], Written],
        kept: ChecksumAlgorithm | None = None,
    ) -> None:
        self._staged = staged
        self._record = record
        self._kept = kept
        self._has_ended = False

    def write(self, data: bytes) -> None:
        try:
            self._staged.write(data)
        except TrainyardError:
            self.abort()
            raise

    def commit(
        self,
        *,
        now: datetime,
        expected: Sequence[Checksum] = (),
        md5: str | None = None,
        precondition: Precondition = ANY_STATE,
    ) -> Written:
        assert not self._has_ended, "the writer has ended already"
        self._has_ended = True
        staged = self._staged
        try:
            checksum = staged.digests.verify(expected, md5=md5, again=staged.chunks)
            if self._kept is not None:
                checksum = staged.digests.checksum(self._kept, staged.chunks)
            written = Written(staged.digests.etag, staged.size, now, checksum)
            return self._record(staged, written, precondition)
        finally:
            staged.close()

    def abort(self) -> None:
        self._has_ended = True
        self._staged.close()
