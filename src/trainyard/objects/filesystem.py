"""Objects in a local folder: data files, and an index that says what they are."""

import io
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from trainyard.foundation.disk import Reserve
from trainyard.foundation.errors import Corrupt, LimitExceeded, NotFound, TrainyardError, Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.checksums import ContentDigests, digest_of, etag_of_parts
from trainyard.objects.contract import (
    ANY_STATE,
    Attributes,
    Bucket,
    Checksum,
    ChecksumAlgorithm,
    ChecksumType,
    CompletedPart,
    Listing,
    NewObject,
    ObjectInfo,
    ObjectPart,
    Precondition,
    Upload,
    UploadPage,
    Written,
)
from trainyard.objects.database import DiskFull
from trainyard.objects.datafiles import Arrival, DataFileMissing, DataFiles, data_path, explain, hold
from trainyard.objects.index import Index
from trainyard.objects.index_uploads import PartsMoved
from trainyard.objects.index_usage import UsageIndex
from trainyard.objects.multipart import MOST_PARTS, named_parts, new_upload, whole_checksum
from trainyard.objects.preconditions import check_etag
from trainyard.objects.rows import StoredObject, StoredPart
from trainyard.objects.verification import find_problems

T = TypeVar("T")

log = logging.getLogger(__name__)


class FilesystemObjects:
    """An `ObjectStore` in the folder `root`, which it makes when it is absent.

    Several processes may have it open at the same time. Opening it clears up what a crash left behind, in time that
    grows with what was under way, not with what is stored.
    """

    def __init__(self, root: Path, *, reserve_bytes: int = 0) -> None:
        """`reserve_bytes` stay free on the disk; 0 is a twentieth of it, and at most 1 GiB."""
        self._clearing = Lock()
        self._pending = PendingBytes()
        self._cleared = 0
        with ExitStack() as opened:
            self._files = DataFiles(root, reserve_bytes=reserve_bytes)
            opened.callback(self._files.close)
            self._check_index(root / "index.sqlite")
            self._index = Index(root / "index.sqlite")
            opened.callback(self._index.close)
            self._recover()
            self._close = opened.pop_all().close

    def close(self) -> None:
        self._close()

    @property
    def reserve(self) -> Reserve:
        return self._files.reserve

    def usage(self) -> Mapping[str, int]:
        return self._index.usage.usage()

    def limits(self) -> Mapping[str, int]:
        return self._index.usage.limits()

    def set_limit(self, account: str, limit_bytes: int | None) -> None:
        self._index.usage.set_limit(account, limit_bytes)

    def require_room(self, where: Location, size: int) -> None:
        self._files.require_room(size)
        self._claim(where, is_object=True).check(size)

    def create_bucket(self, ref: BucketRef, *, region: str, now: datetime) -> Bucket:
        self._files.require_room(0)
        bucket = Bucket(ref, region, now)
        self._index.add_bucket(bucket)
        return bucket

    def delete_bucket(self, ref: BucketRef) -> None:
        self._remove(lambda: self._index.delete_bucket(ref))

    def bucket(self, ref: BucketRef) -> Bucket:
        return self._index.bucket(ref)

    def buckets(self, *, account: str | None = None, name: str | None = None) -> Sequence[Bucket]:
        return self._index.buckets(account=account, name=name)

    def tag_bucket(self, ref: BucketRef, tags: Mapping[str, str]) -> None:
        self._index.tag_bucket(ref, tags)

    def writer(
        self, where: Location, attributes: Attributes, *, algorithms: Sequence[ChecksumAlgorithm] = ()
    ) -> "FileWriter":
        bucket = self._index.bucket_id(where.bucket)

        def record(data: str, written: Written, precondition: Precondition) -> bool:
            info = ObjectInfo(where, written.size, written.etag, written.modified_at, attributes, written.checksum)
            return self._index.put_object(bucket, StoredObject(data, info), precondition=precondition)

        claim = self._claim(where, is_object=True)
        return FileWriter(self._files.begin(), algorithms, claim=claim, record=record, clear=self._clear_trash)

    def put_together(self, objects: Sequence[NewObject], *, now: datetime) -> Sequence[Written | TrainyardError]:
        arrivals: list[Arrival] = []
        stored = []
        with _discarding(arrivals):
            for each in objects:
                arrivals.append(self._files.begin(beside=arrivals[0] if arrivals else None))
                arrivals[-1].write(each.body)
                stored.append(_stored(arrivals[-1].data, each, now))
            self._files.settle(arrivals)
            conditions = [each.precondition for each in objects]
            outcomes = self._index.put_objects(list(zip(stored, conditions, strict=True)))
        for arrival, outcome in zip(arrivals, outcomes, strict=True):
            if isinstance(outcome, TrainyardError):
                arrival.discard()
            else:
                arrival.release()
        if True in outcomes:
            self._clear_trash()
        written = [Written(each.info.etag, each.info.size, now) for each in stored]
        return [
            outcome if isinstance(outcome, TrainyardError) else done
            for outcome, done in zip(outcomes, written, strict=True)
        ]

    def open(self, where: Location) -> "FileReader":
        stored = self._index.object(where)
        while True:
            try:
                return FileReader(stored.info, self._files.open(stored.data))
            except DataFileMissing:
                stored = self._since_replaced(stored)

    def open_near(self, where: Location) -> "FileReader":
        """24 µs for a small object (2026, one core of two); the hop to a thread and back takes 100."""
        return self.open(where)

    def stored_files(self, bucket: BucketRef, keys: Sequence[str]) -> "list[StoredFile | None]":
        """The files that hold these objects, in their order; None for one that is not there, as without the bucket.

        They never change, but may be removed any time.
        """
        place = self._files.place
        return [
            None if data is None else StoredFile(place(data), size, etag)
            for data, size, etag in self._index.data_files(bucket, keys)
        ]

    @property
    def files_folder(self) -> str:
        """The folder below which all stored files lie."""
        return self._files.folder

    def info(self, where: Location) -> ObjectInfo:
        return self._index.object(where).info

    def list_objects(
        self, bucket: BucketRef, *, prefix: str = "", delimiter: str = "", after: str = "", limit: int = 1000
    ) -> Listing:
        return self._index.list_objects(bucket, prefix=prefix, delimiter=delimiter, after=after, limit=limit)

    def delete(self, where: Location, *, precondition: Precondition = ANY_STATE) -> bool:
        return self._remove(lambda: self._index.delete_object(where, precondition))

    def delete_many(self, bucket: BucketRef, keys: Sequence[str]) -> None:
        self._remove(lambda: self._index.delete_objects(bucket, keys))

    def copy(
        self,
        source: Location,
        target: Location,
        *,
        now: datetime,
        attributes: Attributes | None = None,
        algorithm: ChecksumAlgorithm | None = None,
        source_etag: str | None = None,
        precondition: Precondition = ANY_STATE,
    ) -> ObjectInfo:
        """Copies no bytes: the new object is another name for the same file, and has the same ETag."""
        bucket = self._index.bucket_id(target.bucket)
        stored, arrival = self._linked(source, source_etag)
        info = replace(stored.info, where=target, modified_at=now)
        if attributes is not None:
            info = replace(info, attributes=attributes)
        with _discarding([arrival]):
            info = replace(info, checksum=self._copied_checksum(stored, algorithm))
            arrival.settle()
            self._index.put_object(bucket, StoredObject(arrival.data, info), precondition=precondition)
        arrival.release()
        self._clear_trash()
        return info

    def tag_object(self, where: Location, tags: Mapping[str, str]) -> None:
        self._files.require_room(0)
        self._index.tag_object(where, tags)

    def create_upload(
        self,
        where: Location,
        attributes: Attributes,
        *,
        now: datetime,
        algorithm: ChecksumAlgorithm | None = None,
        checksum_type: ChecksumType | None = None,
    ) -> Upload:
        self._files.require_room(0)
        upload = new_upload(where, attributes, now=now, algorithm=algorithm, checksum_type=checksum_type)
        self._index.uploads.add(upload)
        return upload

    def upload(self, where: Location, upload_id: str) -> Upload:
        return self._index.uploads.find(where, upload_id)

    def uploads(
        self,
        bucket: BucketRef,
        *,
        prefix: str = "",
        delimiter: str = "",
        after_key: str = "",
        after_upload_id: str = "",
        limit: int = 1000,
    ) -> UploadPage:
        return self._index.uploads.page(
            bucket,
            prefix=prefix,
            delimiter=delimiter,
            after_key=after_key,
            after_upload_id=after_upload_id,
            limit=limit,
        )

    def part_writer(
        self, where: Location, upload_id: str, number: int, *, algorithms: Sequence[ChecksumAlgorithm] = ()
    ) -> "FileWriter":
        upload = self._index.uploads.find(where, upload_id)

        def record(data: str, written: Written, precondition: Precondition) -> bool:
            assert precondition == ANY_STATE, "a part has no precondition"
            part = ObjectPart(number, written.size, written.etag, written.modified_at, written.checksum)
            return self._index.uploads.put_part(where, upload_id, stored=StoredPart(data, part))

        arrival = self._files.begin()
        claim = self._claim(where, is_object=False)
        return FileWriter(
            arrival, algorithms, claim=claim, record=record, clear=self._clear_trash, kept=upload.algorithm
        )

    def parts(self, where: Location, upload_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[ObjectPart]:
        return [stored.part for stored in self._index.uploads.parts(where, upload_id, after=after, limit=limit)]

    def complete_upload(
        self,
        where: Location,
        upload_id: str,
        parts: Sequence[CompletedPart],
        *,
        now: datetime,
        expected: Checksum | None = None,
        precondition: Precondition = ANY_STATE,
    ) -> ObjectInfo:
        while True:
            upload = self._index.uploads.find(where, upload_id)
            known = {stored.part.number: stored for stored in self._known_parts(upload)}
            named = named_parts(parts, {number: stored.part for number, stored in known.items()})
            stored = [known[part.number] for part in named]
            try:
                return self._complete(upload, stored, now=now, expected=expected, precondition=precondition)
            except (DataFileMissing, PartsMoved):
                # A part was replaced meanwhile, so look again; one that is lost for good ends the loop.
                if self._known_parts(upload) == list(known.values()):
                    raise

    def abort_upload(self, where: Location, upload_id: str) -> None:
        self._remove(lambda: self._index.uploads.delete(where, upload_id))

    def sweep(self) -> int:
        """Remove files of deleted things that could not go at once; how many. None go while a backup holds them."""
        return self._clear_trash(after=0)

    def verify(self, *, deep: bool = False) -> Sequence[str]:
        """What is wrong with the store, one sentence each; `deep` reads every byte and compares the checksums."""
        return find_problems(self._index.data, self._files, deep=deep)

    def _claim(self, where: Location, *, is_object: bool) -> "Claim":
        def replaced() -> int:
            with suppress(NotFound):
                return self._index.object(where).info.size if is_object else 0
            return 0

        return Claim(self._pending, self._index.usage, where.bucket.account, replaced=replaced)

    def _check_index(self, path: Path) -> None:
        if not path.exists() and next(iter(self._files), None) is not None:
            raise Corrupt(
                f"{path} is missing although there are data files beside it; bring back a backup with "
                "`trainyard restore`. Nothing was changed."
            )

    def _recover(self) -> None:
        if self._files.is_alone:
            self._judge_arrivals()
        self._files.share()
        self.sweep()
        self._files.load_ballast()

    def _judge_arrivals(self) -> None:
        arrivals = [Arrival(self._files, data, None) for data in self._files.arrivals()]
        for arrival in arrivals:
            if self._index.data.names(arrival.data):
                arrival.release()
            else:
                arrival.discard()
        if arrivals:
            log.info("interrupted writes cleared up", extra={"count": len(arrivals)})

    def _clear_trash(self, *, after: int | None = None) -> int:
        """Remove files that nothing names any more. What fails stays in the trash, for the operation itself is done."""
        removed = 0
        with self._clearing, suppress(Unavailable):
            done = self._cleared if after is None else after
            while trash := self._index.data.trash(after=done):
                removed += self._files.remove([piece.data for piece in trash])
                self._cleared = done = trash[-1].sequence
                self._index.data.forget_trash(done)
        return removed

    def _remove(self, removal: Callable[[], T]) -> T:
        """Forget something and remove its files, also on a full disk: that is how space is made."""
        try:
            result = removal()
            self._clear_trash()
        except DiskFull:
            self._files.drop_ballast()
            try:
                result = removal()
                self._clear_trash()
            finally:
                self._files.load_ballast()
        return result

    def _since_replaced(self, stored: StoredObject) -> StoredObject:
        """The object that took the place of one whose file is gone."""
        fresh = self._index.object(stored.info.where)
        if fresh.data == stored.data:
            raise Corrupt(
                f"The data file of {stored.info.where} is lost; bring back a backup with `trainyard restore`."
            )
        return fresh

    def _linked(self, source: Location, source_etag: str | None) -> tuple[StoredObject, Arrival]:
        stored = self._index.object(source)
        while True:
            check_etag(source_etag, source, etag=stored.info.etag)
            try:
                return stored, self._files.link(stored.data, stored.info.size)
            except DataFileMissing:
                stored = self._since_replaced(stored)

    def _copied_checksum(self, stored: StoredObject, algorithm: ChecksumAlgorithm | None) -> Checksum | None:
        known = stored.info.checksum
        if algorithm is None:
            return known
        if known is not None and known.algorithm is algorithm and known.type is ChecksumType.FULL_OBJECT:
            return known
        return Checksum(algorithm, digest_of(algorithm, self._files.chunks(stored.data)))

    def _known_parts(self, upload: Upload) -> Sequence[StoredPart]:
        return self._index.uploads.parts(upload.where, upload.id, after=0, limit=MOST_PARTS)

    def _complete(
        self,
        upload: Upload,
        stored: Sequence[StoredPart],
        *,
        now: datetime,
        expected: Checksum | None,
        precondition: Precondition,
    ) -> ObjectInfo:
        data = {part.part.number: part.data for part in stored}
        parts = [part.part for part in stored]
        checksum = whole_checksum(
            upload, parts, expected=expected, read=lambda part: self._files.chunks(data[part.number])
        )
        size = sum(part.size for part in parts)
        etag = etag_of_parts(part.etag for part in parts)
        info = ObjectInfo(upload.where, size, etag, now, upload.attributes, checksum, tuple(parts))
        arrival = self._joined(stored)
        with _discarding([arrival]):
            arrival.settle()
            self._index.uploads.complete(
                upload, StoredObject(arrival.data, info), parts=stored, precondition=precondition
            )
        arrival.release()
        self._clear_trash()
        return info

    def _joined(self, stored: Sequence[StoredPart]) -> Arrival:
        if len(stored) == 1:
            return self._files.link(stored[0].data, stored[0].part.size)
        return self._files.join([(part.data, part.part.size) for part in stored])


class StoredFile(NamedTuple):
    """The file of one version of an object. It never changes, but may be removed any time."""

    path: str
    size: int
    etag: str


class PendingBytes:
    """What is being written for each account by this process, and is not counted yet. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_account: Counter[str] = Counter()

    def add(self, account: str, size: int) -> int:
        """How much is pending with it."""
        with self._lock:
            self._by_account[account] += size
            return self._by_account[account]

    def remove(self, account: str, size: int) -> None:
        with self._lock:
            self._by_account[account] -= size
            if not self._by_account[account]:
                del self._by_account[account]


class Claim:
    """The bytes of one write, which count for its account while they come. Leaving its block gives them back."""

    def __init__(self, pending: PendingBytes, usage: UsageIndex, account: str, *, replaced: Callable[[], int]) -> None:
        self._pending = pending
        self._usage = usage
        self._account = account
        self._replaced = replaced
        self._size = 0

    def check(self, size: int) -> None:
        """LimitExceeded when so much is too much beside all that is pending."""
        self._require_room(self._pending.add(self._account, 0) + size)

    def add(self, size: int) -> None:
        """LimitExceeded when it is too much now."""
        self._size += size
        self._require_room(self._pending.add(self._account, size))

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pending.remove(self._account, self._size)
        self._size = 0

    def _require_room(self, size: int) -> None:
        """What is replaced is looked up only where it decides."""
        try:
            self._usage.require_room(self._account, size)
        except LimitExceeded:
            self._usage.require_room(self._account, size, replaced=self._replaced())


class FileReader:
    """One version of an object; its file stays readable while it is open, also when its name is gone."""

    __slots__ = ("file", "info")

    def __init__(self, info: ObjectInfo, file: io.FileIO) -> None:
        self.info = info
        self.file = file

    def read(self, offset: int, size: int) -> bytes:
        wanted = max(0, min(size, self.info.size - offset))
        data = self._read_once(wanted, offset)
        while len(data) < wanted:  # the kernel gives at most 2 GiB at once
            more = self._read_once(wanted - len(data), offset + len(data))
            if not more:
                raise Corrupt(
                    f"The data file of {self.info.where} is shorter than it should be; run `trainyard doctor`."
                )
            data += more
        return data

    def read_now(self, offset: int, size: int) -> bytes | None:
        data = bytearray(max(0, min(size, self.info.size - offset)))
        try:
            is_whole = os.preadv(self.file.fileno(), [data], offset, os.RWF_NOWAIT) == len(data)
        except OSError:  # not in memory, or a file system that cannot tell
            return None
        return bytes(data) if is_whole else None

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_once(self, size: int, offset: int) -> bytes:
        try:
            return os.pread(self.file.fileno(), size, offset)
        except OSError as error:
            raise explain(error) from error


class FileWriter:
    """Writes a data file and counts its digests on the way; `record` then names it in the index."""

    def __init__(
        self,
        arrival: Arrival,
        algorithms: Sequence[ChecksumAlgorithm],
        *,
        claim: "Claim",
        record: Callable[[str, Written, Precondition], bool],
        clear: Callable[[], object],
        kept: ChecksumAlgorithm | None = None,
    ) -> None:
        self._arrival = arrival
        self._digests = ContentDigests((*algorithms, kept) if kept else algorithms)
        self._claim = claim
        self._record = record
        self._clear = clear
        self._kept = kept
        self._has_ended = False

    def write(self, data: bytes) -> None:
        try:
            self._claim.add(len(data))
            self._arrival.write(data)
        except TrainyardError:
            self.abort()
            raise
        self._digests.update(data)

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
        with self._claim, _discarding([self._arrival]):
            checksum = self._digests.verify(expected, md5=md5, again=self._arrival.chunks)
            if self._kept is not None:
                checksum = self._digests.checksum(self._kept, self._arrival.chunks)
            written = Written(self._digests.etag, self._digests.size, now, checksum)
            self._arrival.settle()
            replaces = self._record(self._arrival.data, written, precondition)
        self._arrival.release()
        if replaces:
            self._clear()
        return written

    def abort(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            with self._claim:
                self._arrival.discard()


@contextmanager
def snapshot(root: Path, index: Path) -> Iterator[Iterator[Path]]:
    """Copy the index of the store at `root` to `index` and give the data files it names, for a backup.

    Works beside a running yard: none of the files is removed before the end. Laid out as they are under `root`, the
    files and the copy make a store as it was at one moment.
    """
    with hold(root):
        with closing(Index(root / "index.sqlite")) as living:
            living.back_up(index)
        with closing(Index(index)) as copied:
            yield (data_path(root, data) for data in copied.data.all_data())


@contextmanager
def _discarding(arrivals: Sequence[Arrival]) -> Iterator[None]:
    """Leave nothing behind when one of our errors says that the write did not happen.

    After any other exception nobody knows whether it did; the files stay, and the next start judges them.
    """
    try:
        yield
    except TrainyardError:
        for arrival in arrivals:
            arrival.discard()
        raise


def _stored(data: str, new: NewObject, now: datetime) -> StoredObject:
    digests = ContentDigests(())
    digests.update(new.body)
    return StoredObject(data, ObjectInfo(new.where, digests.size, digests.etag, now, new.attributes))
