"""What it means to keep objects.

`ObjectStore` is the seam. Two implementations stand behind it, `FilesystemObjects` and `RemoteObjects`; both must pass
`trainyard.testing.objects.ObjectStoreContract`. Instances need only `ObjectAccess` of it, which `ServedObjects` gives
them where a yard on another machine has the store.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import BinaryIO, Protocol, Self, runtime_checkable

from trainyard.foundation.disk import Reserve
from trainyard.foundation.errors import LimitExceeded, TrainyardError, Unavailable
from trainyard.foundation.locations import BucketRef, Location


class PreconditionFailed(TrainyardError):
    """The object is not in the state that the caller demanded."""


class StorageFull(LimitExceeded):
    """The account that owns the bucket may not keep so much."""


class Replaced(Unavailable):
    """The object is not the one any more that is asked for, and the store keeps no older ones."""

    def __init__(self, where: Location) -> None:
        super().__init__(f"{where} was replaced while it was being read.")
        self.where = where


class DigestMismatch(TrainyardError):
    """The bytes that arrived are not those the sender described."""

    def __init__(self, algorithm: str, expected: str, computed: str) -> None:
        super().__init__(f"The {algorithm} of the body is {computed}, but {expected} was announced.")
        self.algorithm = algorithm


class InvalidPart(TrainyardError):
    """A part named in a completion, here as it is named there, is absent, changed, or out of order."""

    def __init__(self, message: str, *, number: int = 0, etag: str = "") -> None:
        super().__init__(message)
        self.number, self.etag = number, etag


class PartTooSmall(TrainyardError):
    """A part other than the last is smaller than S3 allows."""

    def __init__(self, message: str, *, number: int, etag: str, size: int) -> None:
        super().__init__(message)
        self.number, self.etag, self.size = number, etag, size


class ChecksumAlgorithm(StrEnum):
    CRC32 = "CRC32"
    CRC32C = "CRC32C"
    CRC64NVME = "CRC64NVME"
    SHA1 = "SHA1"
    SHA256 = "SHA256"


class ChecksumType(StrEnum):
    FULL_OBJECT = "FULL_OBJECT"
    COMPOSITE = "COMPOSITE"


@dataclass(frozen=True, slots=True)
class Checksum:
    """A base64 digest as S3 writes it; a COMPOSITE one ends in `-<parts>`."""

    algorithm: ChecksumAlgorithm
    value: str
    type: ChecksumType = ChecksumType.FULL_OBJECT


@dataclass(frozen=True, slots=True)
class Attributes:
    """What the writer says about an object, kept and given back unchanged.

    `headers` are the system ones by their HTTP name in lower case (content-type, cache-control, content-encoding,
    content-disposition, content-language, expires, x-amz-storage-class, x-amz-server-side-encryption…);
    `metadata` is the user's own.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bucket:
    ref: BucketRef
    region: str
    created_at: datetime
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObjectSummary:
    """What a listing tells of an object. `etag` carries no quotes.

    `checksum` and `storage_class` are None also where the store would have to look at each object to know them.
    """

    key: str
    size: int
    etag: str
    modified_at: datetime
    checksum: Checksum | None = None
    storage_class: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectPart:
    number: int
    size: int
    etag: str
    modified_at: datetime
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Everything known of an object but its bytes. `parts` is empty unless it was uploaded in parts."""

    where: Location
    size: int
    etag: str
    modified_at: datetime
    attributes: Attributes
    checksum: Checksum | None = None
    parts: Sequence[ObjectPart] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """One page, ordered by the UTF-8 bytes of key and prefix together.

    `next_after` is what to pass as `after` for the next page; None on the last.
    """

    objects: Sequence[ObjectSummary]
    prefixes: Sequence[str]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class Upload:
    """A multipart upload that is neither completed nor aborted."""

    id: str
    where: Location
    started_at: datetime
    attributes: Attributes
    algorithm: ChecksumAlgorithm | None = None
    checksum_type: ChecksumType | None = None


@dataclass(frozen=True, slots=True)
class UploadPage:
    """One page of uploads, ordered by key, then by start. The markers are those of the next page, None on the last."""

    uploads: Sequence[Upload]
    prefixes: Sequence[str]
    next_key: str | None
    next_upload_id: str | None


@dataclass(frozen=True, slots=True)
class CompletedPart:
    """A part as the completing client names it."""

    number: int
    etag: str
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class Precondition:
    """What must hold of the target at the moment of the write, checked atomically with it."""

    etag: str | None = None
    absent: bool = False


ANY_STATE = Precondition()


class ObjectReader(Protocol):
    """One version of one object, open for reading; later writes and deletes do not touch it."""

    info: ObjectInfo

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes from `offset`, fewer only at the end of the object."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class LiesInFile(Protocol):
    """A reader whose bytes are a local file, so that the kernel can send them. The reader owns and closes the file."""

    file: BinaryIO

    def read_now(self, offset: int, size: int) -> bytes | None:
        """What `read` gives when the bytes are in memory already; None when it would wait for a disk."""
        ...


@runtime_checkable
class IsNear(Protocol):
    """A store on this machine: its look-ups take microseconds, less than it costs to ask another thread for them."""

    def open_near(self, where: Location) -> "ObjectReader":
        """`open`, also on an event loop."""
        ...


class ObjectWriter(Protocol):
    """Takes the bytes of one object or one part. Nothing is visible before `commit`; used by one thread at a time.

    Exactly one of `commit` and `abort` ends it; after a failed `commit` it is aborted already. `abort` may be called
    again and after `commit`, and then does nothing.
    """

    def write(self, data: bytes) -> None: ...

    def commit(
        self,
        *,
        now: datetime,
        expected: Sequence[Checksum] = (),
        md5: str | None = None,
        precondition: Precondition = ANY_STATE,
    ) -> "Written":
        """Make it visible, whole and durable.

        `md5` (base64) and `expected` are compared with what arrived, DigestMismatch otherwise; the first of `expected`
        is kept as the checksum of the object. PreconditionFailed when `precondition` does not hold. NotFound when the
        bucket or the upload is gone meanwhile.
        """
        ...

    def abort(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Written:
    etag: str
    size: int
    modified_at: datetime
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class NewObject:
    """A small object, whole, and what must hold of its key."""

    where: Location
    body: bytes
    attributes: Attributes
    precondition: Precondition = ANY_STATE


@runtime_checkable
class WritesTogether(Protocol):
    """A store to which many small objects cost little more than one, when they come at once."""

    def put_together(self, objects: Sequence[NewObject], *, now: datetime) -> "Sequence[Written | TrainyardError]":
        """Put all of them at one moment, so that a reader sees all or none; what came of each.

        One that cannot be put, because its precondition does not hold or its bucket is gone, keeps none of the others
        away. What hinders all of them is raised, and then none is there.
        """
        ...


Pause = Callable[[float], None]


class ObjectVersion(Protocol):
    """One version of an object that lies elsewhere; it may be read from any thread."""

    @property
    def where(self) -> Location: ...

    @property
    def size(self) -> int: ...

    @property
    def etag(self) -> str: ...

    @property
    def info(self) -> ObjectInfo | None:
        """Known where it was looked up."""
        ...

    def read(self, offset: int, size: int, *, pause: Pause = time.sleep) -> bytes:
        """Exactly `size` bytes from `offset`, fewer only at the end of the object.

        What may pass is tried again; `pause` waits that many seconds in between, and may raise to give up. NotFound
        when the object is gone, Replaced when it is another, Unavailable when the store cannot be used.
        """
        ...


class ObjectVersions(Protocol):
    """Finds versions. `pause` is as for reading them."""

    def known(self, where: Location, *, etag: str, size: int) -> ObjectVersion:
        """The version that a list has told of; nothing is asked."""
        ...

    def newest(self, where: Location, *, pause: Pause = time.sleep) -> ObjectVersion:
        """The version that is there now; NotFound when there is none."""
        ...


@runtime_checkable
class IsFar(Protocol):
    """A store on another machine, from which much is fetched at once: in ranges, each retried, none of two versions."""

    @property
    def versions(self) -> ObjectVersions: ...


@runtime_checkable
class CountsStorage(Protocol):
    """A store that knows what each account keeps in it and how much it may, and what is kept free on its disk.

    A write that would take an account above its limit raises StorageFull, at the latest in its `commit`, whatever is
    written at the same time; one that would use what is kept free raises Unavailable. Objects and parts count their
    bytes and `OVERHEAD_BYTES`; what replaces an object counts what it is larger.
    """

    @property
    def reserve(self) -> Reserve: ...

    def usage(self) -> Mapping[str, int]:
        """Bytes by account."""
        ...

    def limits(self) -> Mapping[str, int]:
        """Bytes by account; that of "*" holds for each account that has none of its own."""
        ...

    def set_limit(self, account: str, limit_bytes: int | None) -> None:
        """None takes a limit away. What is there already stays."""
        ...

    def require_room(self, where: Location, size: int) -> None:
        """Raise, before any of its bytes comes, what writing so much to a key would raise."""
        ...


class ObjectAccess(Protocol):
    """Keeps bytes under an account's bucket and a key; here what instances do with them.

    Writes are atomic and durable: when a method returns, its effect survives kill -9 and power loss, and a reader sees
    the old object or the new one, never a mixture. All methods block and may be called from any thread.

    A missing bucket, key or upload raises NotFound with kind "bucket", "key" or "upload"; a full or read-only disk and
    an unreachable remote raise Unavailable; nothing else leaks from the back end. Keys are any UTF-8 text of 1 to 1024
    bytes; the caller has checked that.
    """

    def writer(
        self, where: Location, attributes: Attributes, *, algorithms: Sequence[ChecksumAlgorithm] = ()
    ) -> ObjectWriter:
        """Begin an object. `algorithms` are those that `commit` will be asked to compare or, without any, to keep."""
        ...

    def open(self, where: Location) -> ObjectReader: ...

    def info(self, where: Location) -> ObjectInfo: ...

    def list_objects(
        self, bucket: BucketRef, *, prefix: str = "", delimiter: str = "", after: str = "", limit: int = 1000
    ) -> Listing:
        """One page of at most `limit` keys and common prefixes strictly after `after`.

        The cost grows with the page, never with the bucket. `after` may be any text; when it ends a page it is the
        last key or common prefix of that page.
        """
        ...

    def delete(self, where: Location, *, precondition: Precondition = ANY_STATE) -> bool:
        """Whether there was an object; deleting an absent key is no error."""
        ...

    def close(self) -> None: ...


class ObjectStore(ObjectAccess, Protocol):
    """All that a yard does with its objects, under the same promises."""

    def create_bucket(self, ref: BucketRef, *, region: str, now: datetime) -> Bucket:
        """AlreadyExists when the account has it."""
        ...

    def delete_bucket(self, ref: BucketRef) -> None:
        """Conflict while it holds an object. Uploads in progress go with it."""
        ...

    def bucket(self, ref: BucketRef) -> Bucket: ...

    def buckets(self, *, account: str | None = None, name: str | None = None) -> Sequence[Bucket]:
        """Those of one account, or of all, and of one name, or of any; ordered by name, then account."""
        ...

    def tag_bucket(self, ref: BucketRef, tags: Mapping[str, str]) -> None:
        """Replace all tags of the bucket."""
        ...

    def delete_many(self, bucket: BucketRef, keys: Sequence[str]) -> None: ...

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
        """Copy whole; None keeps the source's attributes. PreconditionFailed when the source is not `source_etag`."""
        ...

    def tag_object(self, where: Location, tags: Mapping[str, str]) -> None:
        """Replace all tags of the object."""
        ...

    def create_upload(
        self,
        where: Location,
        attributes: Attributes,
        *,
        now: datetime,
        algorithm: ChecksumAlgorithm | None = None,
        checksum_type: ChecksumType | None = None,
    ) -> Upload: ...

    def upload(self, where: Location, upload_id: str) -> Upload: ...

    def uploads(
        self,
        bucket: BucketRef,
        *,
        prefix: str = "",
        delimiter: str = "",
        after_key: str = "",
        after_upload_id: str = "",
        limit: int = 1000,
    ) -> UploadPage: ...

    def part_writer(
        self, where: Location, upload_id: str, number: int, *, algorithms: Sequence[ChecksumAlgorithm] = ()
    ) -> ObjectWriter:
        """Begin part `number` (1 to 10,000); committing it again replaces it."""
        ...

    def parts(self, where: Location, upload_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[ObjectPart]: ...

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
        """Join the named parts into the object and forget the upload.

        InvalidPart when one is absent, has another ETag, or the numbers do not rise; PartTooSmall when one but the last
        has fewer than 5 MiB. The upload stays as it was after any failure.
        """
        ...

    def abort_upload(self, where: Location, upload_id: str) -> None: ...
