"""Sends the objects of a Pipe channel, one after another in the order of the channel.

An object is sent as it is, decompressed, or as a RecordIO record. Of an augmented manifest, each attribute of each line
is sent: one whose name ends in -ref as the bytes of the object that it names, any other as JSON.
"""

import gzip
import json
import os
import random
import tempfile
import zlib
from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from trainyard.formats.recordio import record_frames, record_padding
from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound, Unavailable
from trainyard.foundation.locations import BucketRef, Location, parse_s3_uri
from trainyard.instance.agent.data.object_store import open_store
from trainyard.instance.agent.data.pipe_objects import (
    BATCH_OBJECTS,
    Body,
    BodySource,
    FeedClosing,
    FifoWriter,
    LocalBodySource,
    LocalPendingObject,
    ObjectRef,
    PendingObject,
    StoreFolder,
)
from trainyard.instance.agent.results.failure import CannotRun, FailureKind, absence
from trainyard.link.contract import ChannelSpec, InstanceSpec
from trainyard.objects.contract import HasLocalFile, IsRemote, ObjectAccess, ObjectReader, ObjectReplaced
from trainyard.objects.encryption.keys import KeyUnusable
from trainyard.objects.filesystem import FilesystemObjects, StoredFile

__all__ = ["FeedClosing", "FifoWriter", "PipeFeed"]

_CHUNK = 1 << 20
# How much of a decompressed object is held in memory.
_HELD_BYTES = 8 << 20
_MAX_LINE_BYTES = 64 << 20
_REFERENCE = "-ref"
_OBJECT_ERRORS = (NotFound, Corrupt, Unavailable, KeyUnusable, OSError, EOFError, zlib.error)


class PipeFeed:
    """Sends the epochs of one Pipe channel. Used by one thread. A remote manifest is copied to `scratch`."""

    def __init__(self, spec: InstanceSpec, channel: ChannelSpec, *, scratch: Path | None = None) -> None:
        self._spec = spec
        self._channel = channel
        self._scratch = scratch
        self._bucket = BucketRef(spec.account, channel.bucket)
        self._objects, self._manifests = _SentVersions(), _SentVersions()
        # Whether everything has been sent before.
        self._is_again = False

    def send(self, epoch: int, sink: FifoWriter) -> None:
        """Send the whole channel once.

        Raises CannotRun, naming the object, when one is gone, differs from the epoch before, or cannot be sent.
        """
        self._is_again = epoch > 0
        with ExitStack() as stack:
            store = stack.enter_context(closing(open_store(self._spec.objects)))
            if isinstance(store, FilesystemObjects) and self._is_plain:
                self._send_files(store, epoch, sink)
                return
            bodies = stack.enter_context(closing(_bodies(store, sink)))
            attributes = self._channel.attributes
            items = self._manifest_items(store, epoch=epoch, sink=sink) if attributes else self._channel_refs(epoch)
            stack.enter_context(closing(items))
            for item in bodies.prefetch(items):
                if isinstance(item, bytes):
                    self._send_bytes(item, sink)
                else:
                    self._send_object(item, sink)

    @property
    def _is_plain(self) -> bool:
        """Whether objects are sent as they are."""
        return not (self._channel.attributes or self._is_wrapped or self._channel.compression == "Gzip")

    def _send_files(self, store: FilesystemObjects, epoch: int, sink: FifoWriter) -> None:
        """Let the kernel send one file after another. For small files everything around that must be fast."""
        keys, order = self._channel.keys, self._positions(epoch)
        with StoreFolder(store.files_folder) as folder:
            for first in range(0, len(order), BATCH_OBJECTS):
                positions = order[first : first + BATCH_OBJECTS]
                files = store.stored_files(self._bucket, [keys[position] for position in positions])
                for position, file in zip(positions, files, strict=True):
                    if file is None or not self._send_file(folder, file, position, sink):
                        self._send_object(LocalPendingObject(store, self._ref(position), None), sink)

    def _send_file(self, folder: StoreFolder, file: StoredFile, position: int, sink: FifoWriter) -> bool:
        """Send a file; False when it is encrypted, has been removed, or is not the expected version."""
        path, size, etag, is_sealed = file
        if is_sealed:
            return False
        etags = self._channel.etags
        if etags[position] != etag if etags else self._objects.has_changed(position, etag):
            return False
        try:
            descriptor = folder.open(path)
        except FileNotFoundError:
            return False
        try:
            sink.send(descriptor, 0, size)
        except Corrupt as error:
            raise self._explain_error(self._ref(position).where, error) from error
        finally:
            os.close(descriptor)
        return True

    def _positions(self, epoch: int) -> Sequence[int]:
        order = self._order(len(self._channel.keys), epoch)
        return order[self._channel.part :: self._channel.parts] if self._channel.is_resharded_each_epoch else order

    def _ref(self, position: int) -> ObjectRef:
        channel = self._channel
        where = Location(self._bucket, channel.keys[position])
        if not channel.etags:
            return ObjectRef(where, position)
        return ObjectRef(where, position, channel.etags[position], channel.sizes[position])

    def _channel_refs(self, epoch: int) -> Generator[bytes | ObjectRef, None, None]:
        for position in self._positions(epoch):
            yield self._ref(position)

    def _order(self, count: int, epoch: int) -> Sequence[int]:
        if self._channel.shuffle_seed is None:
            return range(count)
        order = array("Q", range(count))
        random.Random(self._channel.shuffle_seed + epoch).shuffle(order)
        return order

    def _send_object(self, pending: PendingObject, sink: FifoWriter) -> None:
        ref = pending.ref
        try:
            with pending.open() as body:
                self._require_same(self._objects, ref, etag=body.etag)
                if not body.size and ref.where.key.endswith("/"):
                    # An empty object by which some tools mark a folder.
                    return
                if self._channel.compression == "Gzip":
                    self._send_decompressed(body, sink)
                else:
                    self._send_stored(body, sink)
        except BrokenPipeError:
            raise
        except _OBJECT_ERRORS as error:
            raise self._explain_error(ref.where, error) from error

    def _explain_error(self, where: Location, error: Exception) -> CannotRun:
        """Turn an error into one that names the object and says what is wrong with it."""
        if isinstance(error, NotFound):
            return self._unusable(where, f"it {absence(was_listed=bool(self._channel.etags) or self._is_again)}")
        if isinstance(error, KeyUnusable):
            return self._unusable(where, f"it cannot be decrypted: {error.message}")
        if isinstance(error, ObjectReplaced):
            return self._unusable(where, "it was replaced since the job began to read the channel")
        if isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
            return self._unusable(where, f"it is not complete gzip data, as its CompressionType says ({error})")
        return self._unusable(where, str(error))

    def _require_same(self, versions: "_SentVersions", ref: ObjectRef, *, etag: str) -> None:
        """Raise Replaced when an object has changed since the channel was listed or since the epoch before."""
        if versions.has_changed(ref.position, etag) or (ref.etag and ref.etag != etag):
            raise ObjectReplaced(ref.where)

    def _unusable(self, where: Location, why: str) -> CannotRun:
        return CannotRun(
            f"The object {where} of channel {self._channel.name} cannot be sent: {why.removesuffix('.')}.",
            FailureKind.BAD_INPUT,
        )

    @property
    def _is_wrapped(self) -> bool:
        return self._channel.record_wrapper == "RecordIO"

    def _send_stored(self, body: Body, sink: FifoWriter) -> None:
        size = body.size
        if not self._is_wrapped:
            body.send(sink, size)
            return
        for header, length in record_frames(size):
            sink.write(header)
            body.send(sink, length)
        sink.write(record_padding(size))

    def _send_bytes(self, data: bytes, sink: FifoWriter) -> None:
        if not self._is_wrapped:
            sink.write(data)
            return
        ((header, _),) = record_frames(len(data))
        sink.write(b"".join((header, data, record_padding(len(data)))))

    def _send_decompressed(self, body: Body, sink: FifoWriter) -> None:
        with body.raw() as file, gzip.GzipFile(fileobj=file, mode="rb") as decompressed:
            data = decompressed.read(_HELD_BYTES)
            if len(data) < _HELD_BYTES:
                self._send_bytes(data, sink)
            elif self._is_wrapped:
                _send_long_record(decompressed, sink)
            else:
                sink.write(data)
                while data := decompressed.read(_CHUNK):
                    sink.write(data)

    def _manifest_items(
        self, store: ObjectAccess, *, epoch: int, sink: FifoWriter
    ) -> Generator[bytes | ObjectRef, None, None]:
        """Yield an item for each attribute of each line of the manifest."""
        where = Location(self._bucket, self._channel.keys[0])
        try:
            with store.open(where) as reader, _as_file(reader, self._scratch, sink) as file:
                self._require_same(self._manifests, ObjectRef(where, 0), etag=reader.info.etag)
                yield from self._line_items(file, where, epoch=epoch, sink=sink)
        except _OBJECT_ERRORS as error:
            raise self._explain_error(where, error) from error

    def _line_items(
        self, file: BinaryIO, where: Location, *, epoch: int, sink: FifoWriter
    ) -> Iterator[bytes | ObjectRef]:
        starts = _line_starts(file, sink)
        order = self._order(len(starts) - 1, epoch)
        if self._channel.distribution == "ShardedByS3Key":
            order = order[self._channel.part :: self._channel.parts]
        for number in order:
            size = starts[number + 1] - starts[number]
            if size > _MAX_LINE_BYTES:
                raise self._unusable(where, f"its line {number + 1} is longer than {_MAX_LINE_BYTES} bytes")
            line = os.pread(file.fileno(), size, starts[number])
            if line.strip():
                yield from self._attribute_items(self._values(line, where, number), number)

    def _values(self, line: bytes, where: Location, number: int) -> list[Any]:
        """The values of one line's attributes, in the order of the channel's attributes."""
        try:
            attributes = json.loads(line)
            return [attributes[name] for name in self._channel.attributes]
        except (ValueError, RecursionError, TypeError) as error:
            raise self._unusable(where, f"its line {number + 1} is not a JSON object") from error
        except KeyError as error:
            raise self._unusable(where, f"its line {number + 1} has no attribute {error.args[0]}") from error

    def _attribute_items(self, values: Sequence[Any], number: int) -> Iterator[bytes | ObjectRef]:
        for index, (name, value) in enumerate(zip(self._channel.attributes, values, strict=True)):
            if name.endswith(_REFERENCE):
                yield ObjectRef(self._reference(value, name), number * len(values) + index)
            else:
                yield json.dumps(value, ensure_ascii=False).encode()

    def _reference(self, value: Any, name: str) -> Location:
        try:
            return parse_s3_uri(str(value), self._spec.account)
        except InvalidRequest as error:
            raise CannotRun(
                f"The attribute {name} of channel {self._channel.name} does not name an object: {error.message}",
                FailureKind.BAD_INPUT,
            ) from error


class _SentVersions:
    """The versions of the objects that were sent, in eight bytes each."""

    def __init__(self) -> None:
        self._seen = array("q")

    def has_changed(self, position: int, etag: str) -> bool:
        """Whether an object has changed since the last call; remembers its version otherwise."""
        missing = position + 1 - len(self._seen)
        if missing > 0:
            self._seen.frombytes(bytes(missing * self._seen.itemsize))
        known, new = self._seen[position], hash(etag)
        if known and known != new:
            return True
        self._seen[position] = new
        return False


def _send_long_record(decompressed: gzip.GzipFile, sink: FifoWriter) -> None:
    """Send a large object as a record. Its header needs the length, so it is decompressed twice to save memory."""
    size = decompressed.tell()
    while piece := decompressed.read(_CHUNK):
        sink.check()
        size += len(piece)
    decompressed.seek(0)
    for header, length in record_frames(size):
        sink.write(header)
        left = length
        while left and (piece := decompressed.read(min(left, _CHUNK))):
            sink.write(piece)
            left -= len(piece)
    sink.write(record_padding(size))


def _bodies(store: ObjectAccess, sink: FifoWriter) -> BodySource:
    if isinstance(store, FilesystemObjects):
        return LocalBodySource(store)
    from trainyard.instance.agent.data.pipe_prefetch import RemoteBodySource

    assert isinstance(store, IsRemote), "a store is on this machine or remote"
    return RemoteBodySource(store.versions, check=sink.check)


@contextmanager
def _as_file(reader: ObjectReader, scratch: Path | None, sink: FifoWriter) -> Iterator[BinaryIO]:
    """An object as a local file, because its lines are read in any order."""
    if isinstance(reader, HasLocalFile):
        yield reader.file
        return
    with tempfile.TemporaryFile(dir=scratch, buffering=0) as file:
        for offset in range(0, reader.info.size, _CHUNK):
            sink.check()
            file.write(reader.read(offset, _CHUNK))
        yield file


def _line_starts(file: BinaryIO, sink: FifoWriter) -> "array[int]":
    """The offset of each line, and the end of the last one."""
    starts, size = array("Q", [0]), os.fstat(file.fileno()).st_size
    for offset in range(0, size, _CHUNK):
        sink.check()
        data = os.pread(file.fileno(), _CHUNK, offset)
        at = data.find(b"\n")
        while at >= 0:
            starts.append(offset + at + 1)
            at = data.find(b"\n", at + 1)
    if starts[-1] != size:
        starts.append(size)
    return starts
