"""Encrypted data files: made of segments, each written in one go and encrypted with a data key of its own.

A segment is a header and chunks. The header has the data key, encrypted with a key of the keyring; a chunk is up to
64 KiB of content and its tag. The number of a chunk is its nonce, and the last one is marked, so that chunks cannot be
reordered and a segment cannot be cut unnoticed. An object that was uploaded in parts has a segment for each part: so
joining and copying encrypted files copies bytes without decrypting them.
"""

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from itertools import accumulate
from types import TracebackType
from typing import Final, Self

from trainyard.foundation.errors import Corrupt, Unavailable
from trainyard.objects.contract import ObjectInfo
from trainyard.objects.datafiles import IncomingFile, translate_error
from trainyard.objects.encryption.cipher import KEY_BYTES, NONCE_BYTES, TAG_BYTES, Cipher, WrongKey
from trainyard.objects.encryption.keyring import Keyring

CHUNK_BYTES: Final = 64 << 10
_SEALED_CHUNK_BYTES: Final = CHUNK_BYTES + TAG_BYTES
_MAGIC: Final = b"TYS1"
_HEADER: Final = struct.Struct(f"!4s16s{NONCE_BYTES + KEY_BYTES + TAG_BYTES}s")
_CONTEXT: Final = b"object"
_LAST: Final = b"last"
# Bytes read from the disk at once.
_READ_CHUNKS: Final = 16


def sealed_size(size: int) -> int:
    """Return the size of the segment for so many bytes of content. Empty content has one empty chunk."""
    return _HEADER.size + size + TAG_BYTES * _chunk_count(size)


def segment_sizes(info: ObjectInfo) -> Sequence[int]:
    """Return the sizes of the contents of an object's segments."""
    return [part.size for part in info.parts] or [info.size]


class SealingWriter:
    """Encrypts what is written to a new data file. `finish` writes the last chunk."""

    def __init__(self, file: IncomingFile, keyring: Keyring, key_id: str) -> None:
        key = os.urandom(KEY_BYTES)
        wrapped = keyring.wrap(key_id, key, context=_CONTEXT)
        self.file = file
        self._cipher = Cipher(key)
        self._rest = b""
        self._number = 0
        self._size = 0
        file.write(_HEADER.pack(_MAGIC, bytes.fromhex(key_id.replace("-", "")), wrapped))

    def write(self, data: bytes) -> None:
        self._size += len(data)
        content = memoryview(self._rest + data if self._rest else data)
        # At least one byte stays: only `finish` knows which chunk is the last.
        end = (len(content) - 1) // CHUNK_BYTES * CHUNK_BYTES if content else 0
        chunks = [self._seal(content[at : at + CHUNK_BYTES]) for at in range(0, end, CHUNK_BYTES)]
        if chunks:
            self.file.write(b"".join(chunks))
        self._rest = bytes(content[end:])

    def finish(self) -> None:
        """Write the last chunk. Nothing may be written afterwards."""
        self.file.write(self._seal(self._rest, _LAST))
        self._rest = b""

    def chunks(self) -> Iterator[bytes]:
        """Yield the content from the start, after `finish`."""
        segment = _Segment(_HEADER.size, self._size, self._cipher)
        yield from segment.chunks(self.file.fileno(), 0, self._size)

    def _seal(self, content: bytes | memoryview, mark: bytes = b"") -> bytes:
        sealed = self._cipher.encrypt(_nonce(self._number), content, mark)
        self._number += 1
        return sealed


class SealedReader:
    """One version of an encrypted object; its file stays readable while it is open, even if it is removed."""

    __slots__ = ("_content", "_file", "info")

    def __init__(self, info: ObjectInfo, file: FileIO, keyring: Keyring) -> None:
        self.info = info
        self._file = file
        try:
            self._content = SealedContent(file, segment_sizes(info), keyring)
        except BaseException:
            file.close()
            raise

    def read(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.info.size - offset))
        try:
            return b"".join(self._content.chunks(offset, size))
        except Corrupt as error:
            raise Corrupt(f"{self.info.where} is damaged: {error.message}") from error

    def read_now(self, offset: int, size: int) -> bytes | None:
        size = max(0, min(size, self.info.size - offset))
        # To decrypt this much takes less time than a switch to another thread.
        if size > CHUNK_BYTES:
            return None
        try:
            return b"".join(self._content.chunks(offset, size, flags=os.RWF_NOWAIT))
        # The bytes are not in memory, the file system cannot tell, or they are damaged: `read` finds out.
        except (OSError, Corrupt, Unavailable):
            return None

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SealedContent:
    """The content of an open data file with segments of these sizes. The caller owns the file.

    Raises what the keyring raises if a key cannot be used, for the first segment at once.
    """

    __slots__ = ("_ends", "_file", "_keyring", "_segments", "_sizes", "_starts")

    def __init__(self, file: FileIO, sizes: Sequence[int], keyring: Keyring) -> None:
        self._file = file
        self._keyring = keyring
        self._sizes = sizes
        # Where each segment ends in the content, and where it starts in the file.
        self._ends = list(accumulate(sizes))
        self._starts = list(accumulate(map(sealed_size, sizes), initial=0))
        self._segments: dict[int, _Segment] = {}
        self._segment(0)

    def chunks(self, offset: int, size: int, *, flags: int = 0) -> Iterator[bytes]:
        """Yield a range of the content; Corrupt if the file is too short or has been changed.

        `flags` are those of preadv.
        """
        number = bisect_right(self._ends, offset)
        while size > 0 and number < len(self._sizes):
            segment = self._segment(number)
            offset_inside = offset - (self._ends[number] - segment.size)
            taken = min(size, segment.size - offset_inside)
            yield from segment.chunks(self._file.fileno(), offset_inside, taken, flags=flags)
            offset, size, number = offset + taken, size - taken, number + 1

    def segment_chunks(self) -> Iterator[Iterator[bytes]]:
        """Yield the content of each segment, empty ones too."""
        for number, size in enumerate(self._sizes):
            yield self._segment(number).chunks(self._file.fileno(), 0, size)

    def _segment(self, number: int) -> "_Segment":
        if number not in self._segments:
            cipher = _read_cipher(self._file, self._starts[number], self._keyring)
            self._segments[number] = _Segment(self._starts[number] + _HEADER.size, self._sizes[number], cipher)
        return self._segments[number]


@dataclass(frozen=True, slots=True)
class _Segment:
    """A segment whose chunks begin at `start` and have `size` bytes of content."""

    start: int
    size: int
    cipher: Cipher

    def chunks(self, descriptor: int, offset: int, size: int, *, flags: int = 0) -> Iterator[bytes]:
        """Yield a range of the content. Of an empty segment, the empty chunk is checked too."""
        end, last = offset + size, _chunk_count(self.size) - 1
        number, stop = offset // CHUNK_BYTES, min(last, max(0, end - 1) // CHUNK_BYTES) + 1
        while number < stop:
            count = min(_READ_CHUNKS, stop - number)
            sealed = memoryview(self._read(descriptor, number, count, last=last, flags=flags))
            for at in range(count):
                chunk = self._open(number + at, sealed[at * _SEALED_CHUNK_BYTES :][:_SEALED_CHUNK_BYTES], last=last)
                first = (number + at) * CHUNK_BYTES
                yield chunk[max(0, offset - first) : max(0, end - first)]
            number += count

    def _read(self, descriptor: int, number: int, count: int, *, last: int, flags: int) -> bytearray:
        """Read some encrypted chunks in full."""
        wanted = count * _SEALED_CHUNK_BYTES
        if number + count > last:
            wanted -= CHUNK_BYTES - (self.size - last * CHUNK_BYTES)
        return _read_exactly(descriptor, self.start + number * _SEALED_CHUNK_BYTES, wanted, flags=flags)

    def _open(self, number: int, sealed: memoryview, *, last: int) -> bytes:
        try:
            return self.cipher.decrypt(_nonce(number), sealed, _LAST if number == last else b"")
        except WrongKey as error:
            raise Corrupt("its data file has changed since it was stored; run `trainyard doctor`.") from error


def _read_cipher(file: FileIO, start: int, keyring: Keyring) -> Cipher:
    magic, key_id, wrapped = _HEADER.unpack(_read_exactly(file.fileno(), start, _HEADER.size))
    if magic != _MAGIC:
        raise Corrupt(f"{file.name!r} is not an encrypted data file; run `trainyard doctor`.")
    try:
        return Cipher(keyring.unwrap(_key_id(key_id), wrapped, context=_CONTEXT))
    except WrongKey as error:
        raise Corrupt(f"The data key in {file.name!r} is damaged; run `trainyard doctor`.") from error


def _key_id(data: bytes) -> str:
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _read_exactly(descriptor: int, offset: int, size: int, *, flags: int = 0) -> bytearray:
    data = bytearray(size)
    try:
        found = os.preadv(descriptor, [data], offset, flags)
    except BlockingIOError:
        raise
    except OSError as error:
        raise translate_error(error) from error
    if found != size:
        raise Corrupt("its data file is too short; run `trainyard doctor`.")
    return data


def _chunk_count(size: int) -> int:
    return max(1, -(-size // CHUNK_BYTES))


def _nonce(number: int) -> bytes:
    return number.to_bytes(NONCE_BYTES)
