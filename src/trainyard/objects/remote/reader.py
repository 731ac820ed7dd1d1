"""Reading an object of the remote."""

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.objects.contract import ObjectInfo, ObjectVersion, Replaced
from trainyard.objects.remote.faults import Passing

_KEPT_WHOLE = 1 << 20


class Fetched(Protocol):
    """The body of one answer, which is taken once."""

    def read(self) -> bytes: ...

    def chunks(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """Leave unread what has not been read."""
        ...


class RemoteReader:
    """One version of an object.

    Up to 1 MiB it is fetched when it is opened. A larger one is streamed while it is read from front to back, and
    fetched in ranges otherwise. Ranges of a version that was replaced meanwhile can be read only where the remote
    bucket keeps versions; elsewhere Unavailable says so, and bytes of two versions are never mixed.
    """

    def __init__(self, version: ObjectVersion, fetched: Fetched) -> None:
        assert version.info is not None, "an object that was fetched is known"
        self.info: ObjectInfo = version.info
        self._version = version
        self._fetched = fetched
        self._whole = self._read_whole(fetched) if self.info.size <= _KEPT_WHOLE else None
        self._stream = _Stream(fetched.chunks()) if self._whole is None else None

    def read(self, offset: int, size: int) -> bytes:
        wanted = min(size, self.info.size - offset)
        if wanted <= 0:
            return b""
        if self._whole is not None:
            return self._whole[offset : offset + wanted]
        if self._stream is not None and self._stream.place == offset:
            try:
                return self._stream.take(wanted)
            except (Unavailable, EOFError):
                self._stream = None  # the connection was lost; ranges still work
                self._fetched.close()
        return self._read_range(offset, wanted)

    def close(self) -> None:
        self._stream = None
        self._whole = b"" if self._whole is None else self._whole
        self._fetched.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_whole(self, fetched: Fetched) -> bytes:
        try:
            return fetched.read()
        except Passing:
            return self._read_range(0, self.info.size)

    def _read_range(self, offset: int, size: int) -> bytes:
        try:
            return self._version.read(offset, size)
        except (NotFound, Replaced) as error:
            raise Unavailable(
                f"{self.info.where} was replaced or deleted while it was being read, and the remote store keeps no "
                "old versions. Open it again."
            ) from error


class _Stream:
    """The bytes of one answer, from front to back."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.place = 0
        self._chunks = chunks
        self._rest = b""

    def take(self, size: int) -> bytes:
        pieces = [self._rest]
        have = len(self._rest)
        while have < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                raise EOFError
            pieces.append(chunk)
            have += len(chunk)
        joined = b"".join(pieces)
        self._rest = joined[size:]
        self.place += size
        return joined[:size]
