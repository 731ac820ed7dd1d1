"""What a Pipe channel carries: its objects one after another, sent by the kernel from the store's own files.

An object goes as it is, unpacked, or as a RecordIO record. Of an augmented manifest, each attribute of each line goes:
one whose name ends in -ref as the bytes of the object that it names, any other as JSON.
"""

import gzip
import json
import os
import random
import select
import zlib
from array import array
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from trainyard.formats.recordio import record_filling, record_frames
from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound, Unavailable
from trainyard.foundation.locations import BucketRef, Location, parse_s3_uri
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.link.contract import ChannelSpec, InstanceSpec
from trainyard.objects.filesystem import FileReader, FilesystemObjects, StoredFile

_CHUNK = 1 << 20
_HELD_BYTES = 8 << 20  # of an unpacked object, in memory
_AT_ONCE = 500  # objects looked up together
_MAX_LINE_BYTES = 64 << 20
_REFERENCE = "-ref"
_TROUBLE = (NotFound, Corrupt, Unavailable, OSError, EOFError, zlib.error)  # that an object may give


class Closing(Exception):
    """The feeder shall end, for the program has."""


class Sink:
    """The writing end of a FIFO, which must not block; `wake` becomes readable when the feeder shall end.

    Every method may raise BrokenPipeError, when nobody reads any more, and Closing.
    """

    def __init__(self, fifo: int, wake: int) -> None:
        self._fifo = fifo
        self._wake = wake
        self._poll = select.poll()
        self._poll.register(fifo, select.POLLOUT)
        self._poll.register(wake, select.POLLIN)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fifo, view) :]
            except BlockingIOError:
                self._wait()

    def send(self, file: int, offset: int, size: int) -> None:
        """Bytes of a file, by the kernel; Corrupt when it ends before."""
        end = offset + size
        while offset < end:
            try:
                sent = os.sendfile(self._fifo, file, offset, end - offset)
            except BlockingIOError:
                self._wait()
                continue
            if not sent:
                raise Corrupt(f"The file ends {end - offset} bytes too early.")
            offset += sent

    def check(self) -> None:
        """Raise Closing when it is time; for work that writes nothing for long."""
        if select.select([self._wake], [], [], 0)[0]:
            raise Closing

    def _wait(self) -> None:
        if any(descriptor == self._wake for descriptor, _ in self._poll.poll()):
            raise Closing


class Feed:
    """The epochs of one Pipe channel of an instance; used by one thread."""

    def __init__(self, spec: InstanceSpec, channel: ChannelSpec) -> None:
        self._spec = spec
        self._channel = channel
        self._bucket = BucketRef(spec.account, channel.bucket)
        self._objects, self._manifests = _Versions(), _Versions()

    def send(self, epoch: int, sink: Sink) -> None:
        """Send all that the channel holds, once.

        CannotRun, which names the object, when one is gone, is another than in the epoch before, or cannot be sent.
        """
        with closing(FilesystemObjects(Path(self._spec.objects.folder))) as store:
            if self._channel.attributes:
                self._send_manifest(store, Location(self._bucket, self._channel.keys[0]), epoch=epoch, sink=sink)
                return
            order = self._order(len(self._channel.keys), epoch)
            for first in range(0, len(order), _AT_ONCE):
                self._send_objects(store, order[first : first + _AT_ONCE], sink)

    def _order(self, count: int, epoch: int) -> Sequence[int]:
        if self._channel.shuffle_seed is None:
            return range(count)
        order = array("Q", range(count))
        random.Random(self._channel.shuffle_seed + epoch).shuffle(order)
        return order

    def _send_objects(self, store: FilesystemObjects, positions: Sequence[int], sink: Sink) -> None:
        """Look many up at once: one by one it takes longer than to send what is small."""
        keys = self._channel.keys
        try:
            files = store.stored_files(self._bucket, [keys[position] for position in positions])
        except NotFound:
            files = {}  # the bucket is gone, which is told of its first object
        for position in positions:
            where = Location(self._bucket, keys[position])
            self._send_object(store, where, position=position, sink=sink, known=files.get(where.key))

    def _send_object(
        self, store: FilesystemObjects, where: Location, *, position: int, sink: Sink, known: StoredFile | None = None
    ) -> None:
        try:
            with _Body(store, where, known) as body:
                self._require_same(self._objects, position, where=where, etag=body.etag)
                if not body.size and where.key.endswith("/"):
                    return  # an empty object by which some tools show a folder
                if self._channel.compression == "Gzip":
                    self._send_unpacked(body, sink)
                else:
                    self._send_stored(body, sink)
        except BrokenPipeError:
            raise
        except _TROUBLE as error:
            raise self._explained(where, error) from error

    def _explained(self, where: Location, error: Exception) -> CannotRun:
        """What went wrong with an object, with its name."""
        if isinstance(error, NotFound):
            return self._unusable(where, "it does not exist any more")
        if isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
            return self._unusable(where, f"it is not whole gzip data, as its CompressionType says ({error})")
        return self._unusable(where, str(error))

    def _require_same(self, versions: "_Versions", position: int, *, where: Location, etag: str) -> None:
        if versions.is_another(position, etag):
            raise self._unusable(where, "it was replaced after the epoch before")

    def _unusable(self, where: Location, why: str) -> CannotRun:
        return CannotRun(
            f"The object {where} of channel {self._channel.name} cannot be sent: {why.removesuffix('.')}.",
            FailureKind.BAD_INPUT,
        )

    @property
    def _is_wrapped(self) -> bool:
        return self._channel.record_wrapper == "RecordIO"

    def _send_stored(self, body: "_Body", sink: Sink) -> None:
        file, size = body.descriptor, body.size
        if not self._is_wrapped:
            sink.send(file, 0, size)
            return
        start = 0
        for header, length in record_frames(size):
            sink.write(header)
            sink.send(file, start, length)
            start += length
        sink.write(record_filling(size))

    def _send_bytes(self, data: bytes, sink: Sink) -> None:
        if not self._is_wrapped:
            sink.write(data)
            return
        ((header, _),) = record_frames(len(data))
        sink.write(b"".join((header, data, record_filling(len(data)))))

    def _send_unpacked(self, body: "_Body", sink: Sink) -> None:
        with (
            os.fdopen(body.descriptor, "rb", buffering=0, closefd=False) as file,
            gzip.GzipFile(fileobj=file, mode="rb") as unpacked,
        ):
            held = unpacked.read(_HELD_BYTES)
            if len(held) < _HELD_BYTES:
                self._send_bytes(held, sink)
            elif self._is_wrapped:
                _send_long_record(unpacked, sink)
            else:
                sink.write(held)
                while held := unpacked.read(_CHUNK):
                    sink.write(held)

    def _send_manifest(self, store: FilesystemObjects, where: Location, *, epoch: int, sink: Sink) -> None:
        try:
            with store.open(where) as reader:
                self._require_same(self._manifests, 0, where=where, etag=reader.info.etag)
                self._send_lines(store, reader, epoch=epoch, sink=sink)
        except BrokenPipeError:
            raise
        except _TROUBLE as error:
            raise self._explained(where, error) from error

    def _send_lines(self, store: FilesystemObjects, reader: FileReader, *, epoch: int, sink: Sink) -> None:
        where, starts = reader.info.where, _line_starts(reader, sink)
        order = self._order(len(starts) - 1, epoch)
        if self._channel.distribution == "ShardedByS3Key":
            order = order[self._spec.hosts.index(self._spec.instance) :: len(self._spec.hosts)]
        for number in order:
            size = starts[number + 1] - starts[number]
            if size > _MAX_LINE_BYTES:
                raise self._unusable(where, f"its line {number + 1} is longer than {_MAX_LINE_BYTES} bytes")
            line = reader.read(starts[number], size)
            if line.strip():
                self._send_line(store, self._values(line, where, number), number=number, sink=sink)

    def _values(self, line: bytes, where: Location, number: int) -> list[Any]:
        """The attributes of one line, in the order in which they are asked for."""
        try:
            told = json.loads(line)
            return [told[name] for name in self._channel.attributes]
        except (ValueError, RecursionError, TypeError) as error:
            raise self._unusable(where, f"its line {number + 1} is not a JSON object") from error
        except KeyError as error:
            raise self._unusable(where, f"its line {number + 1} has no attribute {error.args[0]}") from error

    def _send_line(self, store: FilesystemObjects, values: Sequence[Any], *, number: int, sink: Sink) -> None:
        for index, (name, value) in enumerate(zip(self._channel.attributes, values, strict=True)):
            if name.endswith(_REFERENCE):
                position = number * len(values) + index
                self._send_object(store, self._reference(value, name), position=position, sink=sink)
            else:
                self._send_bytes(json.dumps(value, ensure_ascii=False).encode(), sink)

    def _reference(self, value: Any, name: str) -> Location:
        try:
            return parse_s3_uri(str(value), self._spec.account)
        except InvalidRequest as error:
            raise CannotRun(
                f"The attribute {name} of channel {self._channel.name} names no object: {error.message}",
                FailureKind.BAD_INPUT,
            ) from error


class _Body:
    """One version of an object, open for reading: by the file that it had a moment ago, if that is still there."""

    __slots__ = ("descriptor", "etag", "size")

    def __init__(self, store: FilesystemObjects, where: Location, known: StoredFile | None) -> None:
        if known is not None:
            try:
                self.descriptor = os.open(known.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                known = None
            else:
                self.size, self.etag = known.size, known.etag
        if known is None:
            with store.open(where) as reader:
                self.descriptor = os.dup(reader.file.fileno())
                self.size, self.etag = reader.info.size, reader.info.etag

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)


class _Versions:
    """Which versions of objects were sent, eight bytes for each."""

    def __init__(self) -> None:
        self._seen = array("q")

    def is_another(self, position: int, etag: str) -> bool:
        """Whether an object is another than it was when it was last asked about."""
        missing = position + 1 - len(self._seen)
        if missing > 0:
            self._seen.frombytes(bytes(missing * self._seen.itemsize))
        known, self._seen[position] = self._seen[position], hash(etag)
        return known not in (0, self._seen[position])


def _send_long_record(unpacked: gzip.GzipFile, sink: Sink) -> None:
    """The header tells the length, so that it is unpacked twice rather than held in memory."""
    size = unpacked.tell()
    while piece := unpacked.read(_CHUNK):
        sink.check()
        size += len(piece)
    unpacked.seek(0)
    for header, length in record_frames(size):
        sink.write(header)
        left = length
        while left and (piece := unpacked.read(min(left, _CHUNK))):
            sink.write(piece)
            left -= len(piece)
    sink.write(record_filling(size))


def _line_starts(reader: FileReader, sink: Sink) -> "array[int]":
    """Where each line begins, and where the last one ends."""
    starts = array("Q", [0])
    for offset in range(0, reader.info.size, _CHUNK):
        sink.check()
        data = reader.read(offset, _CHUNK)
        at = data.find(b"\n")
        while at >= 0:
            starts.append(offset + at + 1)
            at = data.find(b"\n", at + 1)
    if starts[-1] != reader.info.size:
        starts.append(reader.info.size)
    return starts
