"""Objects in a local folder: data files, and an index of them."""

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

from trainyard.foundation.clock import utc_now
from trainyard.foundation.disk import Reserve
from trainyard.foundation.errors import (
    Conflict,
    Corrupt,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    TrainyardError,
    Unavailable,
)
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.checksums import ContentDigests, digest_of, etag_of_parts
from trainyard.objects.contract import (
    ANY_STATE,
    Attributes,
    Bucket,
    BucketUse,
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
    WriteResult,
)
from trainyard.objects.database import DiskFull
from trainyard.objects.datafiles import (
    DataFileMissing,
    DataFiles,
    IncomingFile,
    data_path,
    hold_files,
    is_sealed,
    translate_error,
)
from trainyard.objects.encryption.headers import Encryption, encryption_headers
from trainyard.objects.encryption.keyring import Keyring
from trainyard.objects.encryption.keys import KeyUnusable
from trainyard.objects.encryption.resolution import ResolvedEncryption, resolve_encryption
from trainyard.objects.encryption.sealed_files import (
    SealedContent,
    SealedReader,
    SealingWriter,
    sealed_size,
    segment_sizes,
)
from trainyard.objects.index import BucketTarget, Index
from trainyard.objects.index_uploads import PartsMoved
from trainyard.objects.index_usage import UsageIndex
from trainyard.objects.multipart import MAX_PARTS, find_named_parts, new_upload, whole_checksum
from trainyard.objects.preconditions import check_etag
from trainyard.objects.rows import StoredObject, StoredPart
from trainyard.objects.verification import find_problems

T = TypeVar("T")

_COPY_BYTES = 1 << 20

log = logging.getLogger(__name__)


class FilesystemObjects:
    """An `ObjectStore` in the folder `root`, which is created if missing.

    Several processes may open it at the same time. Opening it recovers from a crash, in time proportional to the
    interrupted writes, not to what is stored.
    """

    def __init__(
        self, root: Path, *, reserve_bytes: int = 0, keys: Path | None = None, master_key_file: Path | None = None
    ) -> None:
        """`reserve_bytes` stay free on the disk; 0 means 5 % of it, at most 1 GiB.

        `keys` is the folder of the keyring, by default beside `root`.
        """
        self.keyring = Keyring(keys or root.with_name("keys"), master_key_file=master_key_file)
        self._trash_lock = Lock()
        self._pending = PendingBytes()
        self._cleared_sequence = 0
        with ExitStack() as resources:
            resources.callback(self.keyring.close)
            self._files = DataFiles(root, reserve_bytes=reserve_bytes)
            resources.callback(self._files.close)
            self._check_index(root / "index.sqlite")
            self._index = Index(root / "index.sqlite")
            resources.callback(self._index.close)
            self._recover()
            self._close = resources.pop_all().close

    def close(self) -> None:
        self._close()

    @property
    def reserve(self) -> Reserve:
        return self._files.reserve

    def usage(self) -> Mapping[str, int]:
        return self._index.usage.usage()

    def bucket_uses(self, account: str | None) -> Sequence[BucketUse]:
        return self._index.usage.bucket_uses(account)

    def limits(self) -> Mapping[str, int]:
        return self._index.usage.limits()

    def set_limit(self, account: str, limit_bytes: int | None) -> None:
        self._index.usage.set_limit(account, limit_bytes)

    def require_space(self, where: Location, size: int) -> None:
        self._files.require_space(size)
        self._pending_write(where, is_object=True).check(size)

    def create_bucket(self, ref: BucketRef, *, region: str, now: datetime) -> Bucket:
        self._files.require_space(0)
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

    def bucket_encryption(self, ref: BucketRef) -> Encryption | None:
        return Encryption.of(self._index.bucket_target(ref).encryption)

    def encrypt_bucket(self, ref: BucketRef, encryption: Encryption | None) -> None:
        self._files.require_space(0)
        self._index.encrypt_bucket(ref, encryption.headers if encryption else None)

    def writer(
        self, where: Location, attributes: Attributes, *, algorithms: Sequence[ChecksumAlgorithm] = ()
    ) -> "FileWriter":
        target = self._index.bucket_target(where.bucket)
        resolved = self._resolve_encryption(attributes, where.bucket, target)
        attributes = resolved.attributes

        def record(data: str, written: WriteResult, precondition: Precondition) -> bool:
            info = ObjectInfo(where, written.size, written.etag, written.modified_at, attributes, written.checksum)
            return self._index.put_object(target.id, StoredObject(data, info), precondition=precondition)

        return FileWriter(
            self._create_body(resolved.key_id),
            algorithms,
            pending_write=self._pending_write(where, is_object=True),
            record=record,
            clear=self._clear_trash,
            encryption=encryption_headers(attributes),
        )

    def put_batch(self, objects: Sequence[NewObject], *, now: datetime) -> Sequence[WriteResult | TrainyardError]:
        resolved = self._resolve_batch(objects)
        files: list[IncomingFile] = []
        stored = []
        with _discarding_on_failure(files):
            for each, encryption in zip(objects, resolved, strict=True):
                if isinstance(encryption, ResolvedEncryption):
                    body = self._create_body(encryption.key_id, beside=files[0] if files else None)
                    files.append(body.file)
                    body.write(each.body)
                    body.finish()
                    attributes = encryption.attributes
                    stored.append((_new_stored_object(body.file.data, each, attributes, now), each.precondition))
            self._files.settle(files)
            outcomes = self._index.put_objects(stored)
        for file, outcome in zip(files, outcomes, strict=True):
            if isinstance(outcome, TrainyardError):
                file.discard()
            else:
                file.release()
        if True in outcomes:
            self._clear_trash()
        results = iter(zip(stored, outcomes, strict=True))
        return [
            _batch_result(*next(results)) if isinstance(encryption, ResolvedEncryption) else encryption
            for encryption in resolved
        ]

    def open(self, where: Location) -> "FileReader | SealedReader":
        stored = self._index.object(where)
        while True:
            try:
                file = self._files.open(stored.data)
            except DataFileMissing:
                stored = self._find_replacement(stored)
            else:
                if is_sealed(stored.data):
                    return SealedReader(stored.info, file, self.keyring)
                return FileReader(stored.info, file)

    def open_local(self, where: Location) -> "FileReader | SealedReader":
        """Open an object on the calling thread: 24 µs for a small one, while a thread switch takes 100 µs (2026)."""
        return self.open(where)

    def stored_files(self, bucket: BucketRef, keys: Sequence[str]) -> "list[StoredFile | None]":
        """Return the files of these objects in order; None for an object that does not exist.

        The files never change, but may be removed at any time. That of an encrypted object does not have its content.
        """
        place = self._files.place
        return [
            None if data is None else StoredFile(place(data), size, etag, is_sealed(data))
            for data, size, etag in self._index.data_files(bucket, keys)
        ]

    @property
    def files_folder(self) -> str:
        """The folder that contains all stored files."""
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
        """Copy without copying bytes if the encryption stays the same: the new object is a link to the same file.

        Otherwise the content is written again, as one body.
        """
        bucket = self._index.bucket_target(target.bucket)
        stored = self._index.object(source)
        wanted = stored.info.attributes if attributes is None else attributes
        resolved = self._resolve_encryption(wanted, target.bucket, bucket)
        if not self._is_encrypted_alike(stored, resolved, target):
            return self._copy_content(
                *(source, target, resolved.attributes),
                now=now,
                algorithm=algorithm,
                source_etag=source_etag,
                precondition=precondition,
            )
        stored, incoming_file = self._link_source(source, source_etag)
        info = replace(stored.info, where=target, modified_at=now, attributes=resolved.attributes)
        with _discarding_on_failure([incoming_file]):
            info = replace(info, checksum=self._checksum_of_copy(stored, algorithm))
            incoming_file.settle()
            self._index.put_object(bucket.id, StoredObject(incoming_file.data, info), precondition=precondition)
        incoming_file.release()
        self._clear_trash()
        return info

    def tag_object(self, where: Location, tags: Mapping[str, str]) -> None:
        self._files.require_space(0)
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
        self._files.require_space(0)
        attributes = self._resolve_encryption(
            attributes, where.bucket, self._index.bucket_target(where.bucket)
        ).attributes
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

        def record(data: str, written: WriteResult, precondition: Precondition) -> bool:
            assert precondition == ANY_STATE, "a part has no precondition"
            part = ObjectPart(number, written.size, written.etag, written.modified_at, written.checksum)
            return self._index.uploads.put_part(where, upload_id, stored=StoredPart(data, part))

        # Not the bucket's: that may have changed since the upload began.
        target = replace(self._index.bucket_target(where.bucket), encryption={})
        resolved = self._resolve_encryption(upload.attributes, where.bucket, target)
        return FileWriter(
            self._create_body(resolved.key_id),
            algorithms,
            pending_write=self._pending_write(where, is_object=False),
            record=record,
            clear=self._clear_trash,
            stored_algorithm=upload.algorithm,
            encryption=encryption_headers(upload.attributes),
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
            named = find_named_parts(parts, {number: stored.part for number, stored in known.items()})
            stored = [known[part.number] for part in named]
            try:
                return self._complete(upload, stored, now=now, expected=expected, precondition=precondition)
            except (DataFileMissing, PartsMoved):
                # A part was replaced meanwhile, so try again; a lost data file ends the loop.
                if self._known_parts(upload) == list(known.values()):
                    raise

    def abort_upload(self, where: Location, upload_id: str) -> None:
        self._remove(lambda: self._index.uploads.delete(where, upload_id))

    def sweep(self) -> int:
        """Remove leftover files of deleted objects; return how many. Removes none while a backup holds them."""
        return self._clear_trash(after=0)

    def verify(self, *, deep: bool = False) -> Sequence[str]:
        """Return the problems of the store, one sentence each; `deep` reads every byte and compares checksums."""
        return find_problems(self._index.data, self._files, keyring=self.keyring, deep=deep)

    def _pending_write(self, where: Location, *, is_object: bool) -> "PendingWrite":
        def replaced_bytes() -> int:
            with suppress(NotFound):
                return self._index.object(where).info.size if is_object else 0
            return 0

        return PendingWrite(self._pending, self._index.usage, where.bucket.account, replaced=replaced_bytes)

    def _check_index(self, path: Path) -> None:
        if not path.exists() and next(iter(self._files), None) is not None:
            raise Corrupt(
                f"{path} is missing although there are data files beside it; restore a backup with "
                "`trainyard restore`. Nothing was changed."
            )

    def _recover(self) -> None:
        if self._files.is_exclusive:
            self._recover_incoming()
        self._files.share()
        self.sweep()
        self._files.load_ballast()

    def _recover_incoming(self) -> None:
        incoming_files = [IncomingFile(self._files, data, None) for data in self._files.incoming_files()]
        for incoming_file in incoming_files:
            if self._index.data.has_reference(incoming_file.data):
                incoming_file.release()
            else:
                incoming_file.discard()
        if incoming_files:
            log.info("interrupted writes cleared up", extra={"count": len(incoming_files)})

    def _clear_trash(self, *, after: int | None = None) -> int:
        """Remove files without references. Those that fail stay in the trash, as the operation itself is done."""
        removed = 0
        with self._trash_lock, suppress(Unavailable):
            done = self._cleared_sequence if after is None else after
            while trash := self._index.data.trash(after=done):
                removed += self._files.remove([piece.data for piece in trash])
                self._cleared_sequence = done = trash[-1].sequence
                self._index.data.forget_trash(done)
        return removed

    def _remove(self, removal: Callable[[], T]) -> T:
        """Delete something and remove its files, even on a full disk, so that users can free space."""
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

    def _find_replacement(self, stored: StoredObject) -> StoredObject:
        """Return the object that replaced one whose file is gone; Corrupt if it was not replaced."""
        current = self._index.object(stored.info.where)
        if current.data == stored.data:
            raise Corrupt(f"The data file of {stored.info.where} is lost; restore a backup with `trainyard restore`.")
        return current

    def _resolve_encryption(self, attributes: Attributes, ref: BucketRef, target: BucketTarget) -> ResolvedEncryption:
        return resolve_encryption(
            self.keyring,
            attributes,
            default=target.encryption,
            account=ref.account,
            region=target.region,
            now=utc_now(),
        )

    def _resolve_batch(self, objects: Sequence[NewObject]) -> list[ResolvedEncryption | TrainyardError]:
        """Return how each object is encrypted, or why it cannot be."""
        targets: dict[BucketRef, BucketTarget] = {}
        resolved: list[ResolvedEncryption | TrainyardError] = []
        for each in objects:
            ref = each.where.bucket
            try:
                if ref not in targets:
                    targets[ref] = self._index.bucket_target(ref)
                resolved.append(self._resolve_encryption(each.attributes, ref, targets[ref]))
            except (NotFound, KeyUnusable, InvalidRequest) as error:
                resolved.append(error)
        return resolved

    def _create_body(self, key_id: str | None, *, beside: IncomingFile | None = None) -> "PlainBody | SealingWriter":
        """Create the file of a new body, which is encrypted if there is a key."""
        if key_id is None:
            return PlainBody(self._files.create(beside))
        self._index.allow_encrypted_objects()
        file = self._files.create(beside, is_sealed=True)
        with _discarding_on_failure([file]):
            return SealingWriter(file, self.keyring, key_id)

    def _is_encrypted_alike(self, stored: StoredObject, wanted: ResolvedEncryption, target: Location) -> bool:
        if not is_sealed(stored.data):
            return wanted.key_id is None
        have, want = Encryption.of(stored.info.attributes.headers), Encryption.of(wanted.attributes.headers)
        if have is None or want is None or (have.algorithm, have.key) != (want.algorithm, want.key):
            return False
        return have.uses_account_key or stored.info.where.bucket.account == target.bucket.account

    def _copy_content(
        self,
        source: Location,
        target: Location,
        attributes: Attributes,
        *,
        now: datetime,
        algorithm: ChecksumAlgorithm | None,
        source_etag: str | None,
        precondition: Precondition,
    ) -> ObjectInfo:
        with self.open(source) as reader:
            check_etag(source_etag, source, etag=reader.info.etag)
            if algorithm is None and reader.info.checksum is not None:
                algorithm = reader.info.checksum.algorithm
            writer = self.writer(target, attributes, algorithms=[algorithm] if algorithm else [])
            try:
                for offset in range(0, reader.info.size, _COPY_BYTES):
                    writer.write(reader.read(offset, _COPY_BYTES))
                written = writer.commit(now=now, precondition=precondition)
            except BaseException:
                writer.abort()
                raise
        return ObjectInfo(target, written.size, written.etag, now, attributes, written.checksum)

    def _link_source(self, source: Location, source_etag: str | None) -> tuple[StoredObject, IncomingFile]:
        stored = self._index.object(source)
        while True:
            check_etag(source_etag, source, etag=stored.info.etag)
            try:
                return stored, self._files.link(stored.data, stored.info.size)
            except DataFileMissing:
                stored = self._find_replacement(stored)

    def _checksum_of_copy(self, stored: StoredObject, algorithm: ChecksumAlgorithm | None) -> Checksum | None:
        known = stored.info.checksum
        if algorithm is None:
            return known
        if known is not None and known.algorithm is algorithm and known.type is ChecksumType.FULL_OBJECT:
            return known
        return Checksum(algorithm, digest_of(algorithm, self._content(stored.data, segment_sizes(stored.info))))

    def _content(self, data: str, sizes: Sequence[int]) -> Iterator[bytes]:
        """Yield the content of a data file, whose segments have these sizes if it is encrypted."""
        if not is_sealed(data):
            yield from self._files.chunks(data)
            return
        with self._files.open(data) as file:
            yield from SealedContent(file, sizes, self.keyring).chunks(0, sum(sizes))

    def _known_parts(self, upload: Upload) -> Sequence[StoredPart]:
        return self._index.uploads.parts(upload.where, upload.id, after=0, limit=MAX_PARTS)

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
            upload, parts, expected=expected, read=lambda part: self._content(data[part.number], [part.size])
        )
        size = sum(part.size for part in parts)
        etag = etag_of_parts(part.etag for part in parts)
        info = ObjectInfo(upload.where, size, etag, now, upload.attributes, checksum, tuple(parts))
        incoming_file = self._join_parts(upload, stored)
        with _discarding_on_failure([incoming_file]):
            incoming_file.settle()
            self._index.uploads.complete(
                upload, StoredObject(incoming_file.data, info), parts=stored, precondition=precondition
            )
        incoming_file.release()
        self._clear_trash()
        return info

    def _join_parts(self, upload: Upload, stored: Sequence[StoredPart]) -> IncomingFile:
        if len({is_sealed(part.data) for part in stored}) > 1:
            raise Conflict(
                "upload", upload.id, "was begun before this yard encrypted objects; abort it and upload the parts again"
            )
        sizes = [sealed_size(part.part.size) if is_sealed(part.data) else part.part.size for part in stored]
        if len(stored) == 1:
            return self._files.link(stored[0].data, sizes[0])
        return self._files.join([(part.data, size) for part, size in zip(stored, sizes, strict=True)])


class StoredFile(NamedTuple):
    """The file of one version of an object. It never changes, but may be removed at any time.

    If it is sealed, its bytes are encrypted. `size` is that of the object.
    """

    path: str
    size: int
    etag: str
    is_sealed: bool = False


class PendingBytes:
    """Bytes per account that this process is writing and usage does not include yet. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_account: Counter[str] = Counter()

    def add(self, account: str, size: int) -> int:
        """Add bytes and return the account's total."""
        with self._lock:
            self._by_account[account] += size
            return self._by_account[account]

    def remove(self, account: str, size: int) -> None:
        with self._lock:
            self._by_account[account] -= size
            if not self._by_account[account]:
                del self._by_account[account]


class PendingWrite:
    """The bytes of one write, counted for its account while they arrive. Leaving the block stops counting them."""

    def __init__(self, pending: PendingBytes, usage: UsageIndex, account: str, *, replaced: Callable[[], int]) -> None:
        self._pending = pending
        self._usage = usage
        self._account = account
        self._replaced = replaced
        self._size = 0

    def check(self, size: int) -> None:
        """Raise LimitExceeded if `size` bytes exceed the limit together with all pending writes."""
        self._require_space(self._pending.add(self._account, 0) + size)

    def add(self, size: int) -> None:
        """Count `size` more bytes; LimitExceeded if that exceeds the limit."""
        self._size += size
        self._require_space(self._pending.add(self._account, size))

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pending.remove(self._account, self._size)
        self._size = 0

    def _require_space(self, size: int) -> None:
        # The size of the replaced object is looked up only if it matters.
        try:
            self._usage.require_space(self._account, size)
        except LimitExceeded:
            self._usage.require_space(self._account, size, replaced=self._replaced())


class PlainBody:
    """Writes a body as it is to a new data file."""

    __slots__ = ("file",)

    def __init__(self, file: IncomingFile) -> None:
        self.file = file

    def write(self, data: bytes) -> None:
        self.file.write(data)

    def finish(self) -> None:
        """Do nothing: everything has been written."""

    def chunks(self) -> Iterator[bytes]:
        return self.file.chunks()


class FileReader:
    """One version of an object; its file stays readable while it is open, even if it is removed."""

    __slots__ = ("file", "info")

    def __init__(self, info: ObjectInfo, file: io.FileIO) -> None:
        self.info = info
        self.file = file

    def read(self, offset: int, size: int) -> bytes:
        wanted = max(0, min(size, self.info.size - offset))
        data = self._read_once(wanted, offset)
        # The kernel reads at most 2 GiB at once.
        while len(data) < wanted:
            more = self._read_once(wanted - len(data), offset + len(data))
            if not more:
                raise Corrupt(f"The data file of {self.info.where} is too short; run `trainyard doctor`.")
            data += more
        return data

    def read_now(self, offset: int, size: int) -> bytes | None:
        data = bytearray(max(0, min(size, self.info.size - offset)))
        try:
            is_whole = os.preadv(self.file.fileno(), [data], offset, os.RWF_NOWAIT) == len(data)
        # The bytes are not in memory, or the file system cannot tell.
        except OSError:
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
            raise translate_error(error) from error


class FileWriter:
    """Writes a data file and computes its digests; on commit, `record` adds it to the index."""

    def __init__(
        self,
        body: PlainBody | SealingWriter,
        algorithms: Sequence[ChecksumAlgorithm],
        *,
        pending_write: "PendingWrite",
        record: Callable[[str, WriteResult, Precondition], bool],
        clear: Callable[[], object],
        encryption: Mapping[str, str],
        stored_algorithm: ChecksumAlgorithm | None = None,
    ) -> None:
        self._body = body
        self._digests = ContentDigests((*algorithms, stored_algorithm) if stored_algorithm else algorithms)
        self._pending_write = pending_write
        self._record = record
        self._clear = clear
        self._encryption = encryption
        self._stored_algorithm = stored_algorithm
        self._has_ended = False

    def write(self, data: bytes) -> None:
        try:
            self._pending_write.add(len(data))
            self._body.write(data)
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
    ) -> WriteResult:
        assert not self._has_ended, "the writer has already ended"
        self._has_ended = True
        file = self._body.file
        with self._pending_write, _discarding_on_failure([file]):
            self._body.finish()
            checksum = self._digests.verify(expected, md5=md5, reread=self._body.chunks)
            if self._stored_algorithm is not None:
                checksum = self._digests.checksum(self._stored_algorithm, self._body.chunks)
            written = WriteResult(self._digests.etag, self._digests.size, now, checksum, self._encryption)
            file.settle()
            replaces = self._record(file.data, written, precondition)
        file.release()
        if replaces:
            self._clear()
        return written

    def abort(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            with self._pending_write:
                self._body.file.discard()


@contextmanager
def snapshot(root: Path, index: Path) -> Iterator[Iterator[Path]]:
    """Copy the index of the store at `root` to `index` and yield its data files, for a backup.

    Works while a yard runs: no file is removed before the end. Laid out as under `root`, the files and the copy are a
    consistent store.
    """
    with hold_files(root):
        with closing(Index(root / "index.sqlite")) as live_index:
            live_index.back_up(index)
        with closing(Index(index)) as copied_index:
            yield (data_path(root, data) for data in copied_index.data.all_data())


@contextmanager
def _discarding_on_failure(incoming_files: Sequence[IncomingFile]) -> Iterator[None]:
    """Discard the files if a TrainyardError says that the write did not happen.

    After any other exception that is unknown: the files stay, and recovery checks them at the next start.
    """
    try:
        yield
    except TrainyardError:
        for incoming_file in incoming_files:
            incoming_file.discard()
        raise


def _new_stored_object(data: str, new: NewObject, attributes: Attributes, now: datetime) -> StoredObject:
    digests = ContentDigests(())
    digests.update(new.body)
    return StoredObject(data, ObjectInfo(new.where, digests.size, digests.etag, now, attributes))


def _batch_result(
    put: tuple[StoredObject, Precondition], outcome: bool | TrainyardError
) -> WriteResult | TrainyardError:
    if isinstance(outcome, TrainyardError):
        return outcome
    info = put[0].info
    return WriteResult(info.etag, info.size, info.modified_at, encryption=encryption_headers(info.attributes))
