"""What a Pipe channel carries: its objects one after another, in the order of the channel.

An object goes as it is, unpacked, or as a RecordIO record. Of an augmented manifest, each attribute of each line goes:
one whose name ends in -ref as the bytes of the object that it names, any other as JSON.
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

from trainyard.formats.recordio import record_filling, record_frames
from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound, Unavailable
from trainyard.foundation.locations import BucketRef, Location, parse_s3_uri
from trainyard.instance.agent.bodies import (
    AT_ONCE,
    Bodies,
    Body,
    Candidate,
    Closing,
    Folder,
    LocalBodies,
    LocalCandidate,
    ObjectRef,
    Sink,
)
from trainyard.instance.agent.failure import CannotRun, FailureKind, absence
from trainyard.instance.agent.store import open_store
from trainyard.link.contract import ChannelSpec, InstanceSpec
from trainyard.objects.contract import IsFar, LiesInFile, ObjectAccess, ObjectReader, Replaced
from trainyard.objects.filesystem import FilesystemObjects, StoredFile

__all__ = ["Closing", "Feed", "Sink"]

_CHUNK = 1 << 20
_HELD_BYTES = 8 << 20  # of an unpacked object, in memory
_MAX_LINE_BYTES = 64 << 20
_REFERENCE = "-ref"
_TROUBLE = (NotFound, Corrupt, Unavailable, OSError, EOFError, zlib.error)  # that an object may give


class Feed:
    """The epochs of one Pipe channel of an instance; used by one thread. A remote manifest is copied to `scratch`."""

    def __init__(self, spec: InstanceSpec, channel: ChannelSpec, *, scratch: Path | None = None) -> None:
        self._spec = spec
        self._channel = channel
        self._scratch = scratch
        self._bucket = BucketRef(spec.account, channel.bucket)
        self._objects, self._manifests = _Versions(), _Versions()
        self._is_again = False  # all of it has been sent before

    def send(self, epoch: int, sink: Sink) -> None:
        """Send all that the channel holds, once.

        CannotRun, which names the object, when one is gone, is another than in the epoch before, or cannot be sent.
        """
        self._is_again = epoch > 0
        with ExitStack() as ending:
            store = ending.enter_context(closing(open_store(self._spec.objects)))
            if isinstance(store, FilesystemObjects) and self._is_plain:
                self._send_files(store, epoch, sink)
                return
            bodies = ending.enter_context(closing(_bodies(store, sink)))
            attributes = self._channel.attributes
            told = self._lines(store, epoch=epoch, sink=sink) if attributes else self._listed(epoch)
            items = ending.enter_context(closing(told))
            for item in bodies.ahead(items):
                if isinstance(item, bytes):
                    self._send_bytes(item, sink)
                else:
                    self._send_object(item, sink)

    @property
    def _is_plain(self) -> bool:
        """Whether objects go as they are."""
        return not (self._channel.attributes or self._is_wrapped or self._channel.compression == "Gzip")

    def _send_files(self, store: FilesystemObjects, epoch: int, sink: Sink) -> None:
        """Have the kernel send one file after another; for small ones, everything else has to be quick."""
        keys, order = self._channel.keys, self._positions(epoch)
        with Folder(store.files_folder) as folder:
            for first in range(0, len(order), AT_ONCE):
                positions = order[first : first + AT_ONCE]
                files = store.stored_files(self._bucket, [keys[position] for position in positions])
                for position, file in zip(positions, files, strict=True):
                    if file is None or not self._send_file(folder, file, position, sink):
                        self._send_object(LocalCandidate(store, self._ref(position), None), sink)

    def _send_file(self, folder: Folder, file: StoredFile, position: int, sink: Sink) -> bool:
        """Whether the file was sent; not when it has been removed, or is of another version than it should be."""
        path, size, etag = file
        etags = self._channel.etags
        if etags[position] != etag if etags else self._objects.is_another(position, etag):
            return False
        try:
            descriptor = folder.open(path)
        except FileNotFoundError:
            return False
        try:
            sink.send(descriptor, 0, size)
        except Corrupt as error:
            raise self._explained(self._ref(position).where, error) from error
        finally:
            os.close(descriptor)
        return True

    def _positions(self, epoch: int) -> Sequence[int]:
        order = self._order(len(self._channel.keys), epoch)
        return order[self._channel.part :: self._channel.parts] if self._channel.is_shared_out_anew else order

    def _ref(self, position: int) -> ObjectRef:
        channel = self._channel
        where = Location(self._bucket, channel.keys[position])
        if not channel.etags:
            return ObjectRef(where, position)
        return ObjectRef(where, position, channel.etags[position], channel.sizes[position])

    def _listed(self, epoch: int) -> Generator[bytes | ObjectRef, None, None]:
        for position in self._positions(epoch):
            yield self._ref(position)

    def _order(self, count: int, epoch: int) -> Sequence[int]:
        if self._channel.shuffle_seed is None:
            return range(count)
        order = array("Q", range(count))
        random.Random(self._channel.shuffle_seed + epoch).shuffle(order)
        return order

    def _send_object(self, candidate: Candidate, sink: Sink) -> None:
        ref = candidate.ref
        try:
            with candidate.open() as body:
                self._require_same(self._objects, ref, etag=body.etag)
                if not body.size and ref.where.key.endswith("/"):
                    return  # an empty object by which some tools show a folder
                if self._channel.compression == "Gzip":
                    self._send_unpacked(body, sink)
                else:
                    self._send_stored(body, sink)
        except BrokenPipeError:
            raise
        except _TROUBLE as error:
            raise self._explained(ref.where, error) from error

    def _explained(self, where: Location, error: Exception) -> CannotRun:
        """What went wrong with an object, with its name."""
        if isinstance(error, NotFound):
            return self._unusable(where, f"it {absence(was_there=bool(self._channel.etags) or self._is_again)}")
        if isinstance(error, Replaced):
            return self._unusable(where, "it was replaced since the job began to read the channel")
        if isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
            return self._unusable(where, f"it is not whole gzip data, as its CompressionType says ({error})")
        return self._unusable(where, str(error))

    def _require_same(self, versions: "_Versions", ref: ObjectRef, *, etag: str) -> None:
        """Replaced when an object is another than its list told, or than it was in the epoch before."""
        if versions.is_another(ref.position, etag) or (ref.etag and ref.etag != etag):
            raise Replaced(ref.where)

    def _unusable(self, where: Location, why: str) -> CannotRun:
        return CannotRun(
            f"The object {where} of channel {self._channel.name} cannot be sent: {why.removesuffix('.')}.",
            FailureKind.BAD_INPUT,
        )

    @property
    def _is_wrapped(self) -> bool:
        return self._channel.record_wrapper == "RecordIO"

    def _send_stored(self, body: Body, sink: Sink) -> None:
        size = body.size
        if not self._is_wrapped:
            body.send(sink, size)
            return
        for header, length in record_frames(size):
            sink.write(header)
            body.send(sink, length)
        sink.write(record_filling(size))

    def _send_bytes(self, data: bytes, sink: Sink) -> None:
        if not self._is_wrapped:
            sink.write(data)
            return
        ((header, _),) = record_frames(len(data))
        sink.write(b"".join((header, data, record_filling(len(data)))))

    def _send_unpacked(self, body: Body, sink: Sink) -> None:
        with body.raw() as file, gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            held = unpacked.read(_HELD_BYTES)
            if len(held) < _HELD_BYTES:
                self._send_bytes(held, sink)
            elif self._is_wrapped:
                _send_long_record(unpacked, sink)
            else:
                sink.write(held)
                while held := unpacked.read(_CHUNK):
                    sink.write(held)

    def _lines(self, store: ObjectAccess, *, epoch: int, sink: Sink) -> Generator[bytes | ObjectRef, None, None]:
        """What each attribute of each line of the manifest gives."""
        where = Location(self._bucket, self._channel.keys[0])
        try:
            with store.open(where) as reader, _as_file(reader, self._scratch, sink) as file:
                self._require_same(self._manifests, ObjectRef(where, 0), etag=reader.info.etag)
                yield from self._attributes(file, where, epoch=epoch, sink=sink)
        except _TROUBLE as error:
            raise self._explained(where, error) from error

    def _attributes(self, file: BinaryIO, where: Location, *, epoch: int, sink: Sink) -> Iterator[bytes | ObjectRef]:
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
                yield from self._line(self._values(line, where, number), number)

    def _values(self, line: bytes, where: Location, number: int) -> list[Any]:
        """The attributes of one line, in the order in which they are asked for."""
        try:
            told = json.loads(line)
            return [told[name] for name in self._channel.attributes]
        except (ValueError, RecursionError, TypeError) as error:
            raise self._unusable(where, f"its line {number + 1} is not a JSON object") from error
        except KeyError as error:
            raise self._unusable(where, f"its line {number + 1} has no attribute {error.args[0]}") from error

    def _line(self, values: Sequence[Any], number: int) -> Iterator[bytes | ObjectRef]:
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
                f"The attribute {name} of channel {self._channel.name} names no object: {error.message}",
                FailureKind.BAD_INPUT,
            ) from error


class _Versions:
    """Which versions of objects were sent, eight bytes for each."""

    def __init__(self) -> None:
        self._seen = array("q")

    def is_another(self, position: int, etag: str) -> bool:
        """Whether an object is another than it was when it was last asked about."""
        missing = position + 1 - len(self._seen)
        if missing > 0:
            self._seen.frombytes(bytes(missing * self._seen.itemsize))
        known, new = self._seen[position], hash(etag)
        if known and known != new:
            return True
        self._seen[position] = new
        return False


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


def _bodies(store: ObjectAccess, sink: Sink) -> Bodies:
    if isinstance(store, FilesystemObjects):
        return LocalBodies(store)
    from trainyard.instance.agent.prefetching import RemoteBodies

    assert isinstance(store, IsFar), "a store is of this machine or remote"
    return RemoteBodies(store.versions, check=sink.check)


@contextmanager
def _as_file(reader: ObjectReader, scratch: Path | None, sink: Sink) -> Iterator[BinaryIO]:
    """What is read as a file of this machine, for its lines are read in any order."""
    if isinstance(reader, LiesInFile):
        yield reader.file
        return
    with tempfile.TemporaryFile(dir=scratch, buffering=0) as file:
        for offset in range(0, reader.info.size, _CHUNK):
            sink.check()
            file.write(reader.read(offset, _CHUNK))
        yield file


def _line_starts(file: BinaryIO, sink: Sink) -> "array[int]":
    """Where each line begins, and where the last one ends."""
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
