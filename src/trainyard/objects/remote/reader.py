"""The reader of a remote object."""

from collections.abc import Iterator
from types import TracebackType
from typing import Protocol, Self

from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.objects.contract import ObjectInfo, ObjectReplaced, ObjectVersion
from trainyard.objects.remote.failures import TransientFailure

_MAX_WHOLE_BYTES = 1 << 20


class ResponseBody(Protocol):
    """The body of one response, to be read once."""

    def read(self) -> bytes: ...

    def chunks(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """Stop reading; the rest of the body is skipped."""
        ...


class RemoteReader:
    """One version of an object.

    An object of up to 1 MiB is fetched when it is opened. A larger one is streamed if it is read sequentially, and
    fetched in ranges otherwise. If it is replaced meanwhile, ranges are readable only if the remote bucket keeps
    versions; otherwise they raise Unavailable. Bytes of two versions are never mixed.
    """

    def __init__(self, version: ObjectVersion, fetched: ResponseBody) -> None:
        assert version.info is not None, "a fetched object has its info"
        self.info: ObjectInfo = version.info
        self._version = version
        self._fetched = fetched
        self._whole = self._read_whole(fetched) if self.info.size <= _MAX_WHOLE_BYTES else None
        self._stream = _Stream(fetched.chunks()) if self._whole is None else None

    def read(self, offset: int, size: int) -> bytes:
        wanted = min(size, self.info.size - offset)
        if wanted <= 0:
            return b""
        if self._whole is not None:
            return self._whole[offset : offset + wanted]
        if self._stream is not None and self._stream.position == offset:
            try:
                return self._stream.take(wanted)
            except (Unavailable, EOFError):
                # The connection was lost; ranges still work.
                self._stream = None
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

    def _read_whole(self, fetched: ResponseBody) -> bytes:
        try:
            return fetched.read()
        except TransientFailure:
            return self._read_range(0, self.info.size)

    def _read_range(self, offset: int, size: int) -> bytes:
        try:
            return self._version.read(offset, size)
        except (NotFound, ObjectReplaced) as error:
            raise Unavailable(
                f"{self.info.where} was replaced or deleted while it was being read, and the remote store keeps no "
                "old versions. Open it again."
            ) from error


class _Stream:
    """The bytes of one response, read sequentially."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.position = 0
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
        self.position += size
        return joined[:size]
