"""Bodies collected before they are sent to the remote: small ones in memory, others in an unnamed local file."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

from trainyard.foundation.disk import require_space, reserve_of
from trainyard.foundation.errors import TrainyardError
from trainyard.objects.checksums import ContentDigests
from trainyard.objects.contract import ANY_STATE, Checksum, ChecksumAlgorithm, Precondition, WriteResult
from trainyard.objects.datafiles import translate_error
from trainyard.objects.remote.bucket import MAX_SINGLE_PUT_BYTES, Body

_CHUNK = 1 << 20


class StagedBody:
    """Collects a body and computes its digests. Nothing is left of it after `close` or a crash."""

    def __init__(self, folder: Path, algorithms: Sequence[ChecksumAlgorithm] = ()) -> None:
        self.digests = ContentDigests(algorithms)
        self._folder = folder
        self._file: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(MAX_SINGLE_PUT_BYTES, dir=str(folder))  # noqa: SIM115

    @property
    def size(self) -> int:
        return self.digests.size

    def write(self, data: bytes) -> None:
        if self.size + len(data) > MAX_SINGLE_PUT_BYTES:
            require_space(reserve_of(self._folder), len(data))
        try:
            self._file.write(data)
        except OSError as error:
            raise translate_error(error) from error
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
        return self._file.read() if self.size <= MAX_SINGLE_PUT_BYTES else cast(BinaryIO, self._file)

    def part(self, offset: int, size: int) -> "StagedPart":
        """Return a range of a body in a file, which can be read concurrently with others."""
        assert self.size > MAX_SINGLE_PUT_BYTES, "a small body is in memory"
        self._file.flush()
        return StagedPart(self._file.fileno(), offset, min(size, self.size - offset))

    def close(self) -> None:
        self._file.close()


class StagedPart:
    """A range of a staged body as a file to read once, sequentially."""

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor
        self._position, self._end = offset, offset + size

    def read(self, size: int = -1) -> bytes:
        left = self._end - self._position
        data = os.pread(self._descriptor, left if size < 0 else min(size, left), self._position)
        self._position += len(data)
        return data


class StagedWriter:
    """Collects a body locally; on commit, `record` sends it to the remote and returns the result."""

    def __init__(
        self,
        staged: StagedBody,
        *,
        record: Callable[[StagedBody, WriteResult, Precondition], WriteResult],
        stored_algorithm: ChecksumAlgorithm | None = None,
    ) -> None:
        self._staged = staged
        self._record = record
        self._stored_algorithm = stored_algorithm
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
    ) -> WriteResult:
        assert not self._has_ended, "the writer has already ended"
        self._has_ended = True
        staged = self._staged
        try:
            checksum = staged.digests.verify(expected, md5=md5, reread=staged.chunks)
            if self._stored_algorithm is not None:
                checksum = staged.digests.checksum(self._stored_algorithm, staged.chunks)
            written = WriteResult(staged.digests.etag, staged.size, now, checksum)
            return self._record(staged, written, precondition)
        finally:
            staged.close()

    def abort(self) -> None:
        self._has_ended = True
        self._staged.close()
