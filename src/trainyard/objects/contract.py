"""The contract of an object store.

`ObjectStore` is the interface. It has two implementations, `FilesystemObjects` and `RemoteObjects`; both must pass
`trainyard.testing.objects.ObjectStoreContract`. Instances need only `ObjectAccess`, which `ServedObjects` also
implements, for a store on another machine.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Protocol, Self, runtime_checkable

from trainyard.foundation.disk import Reserve
from trainyard.foundation.errors import LimitExceeded, TrainyardError, Unavailable
from trainyard.foundation.locations import BucketRef, Location

if TYPE_CHECKING:
    from trainyard.objects.encryption.headers import Encryption
    from trainyard.objects.encryption.keyring import Keyring


class PreconditionFailed(TrainyardError):
    """The object is not in the state that the caller requires."""


class StorageFull(LimitExceeded):
    """The write would exceed the storage limit of the account that owns the bucket."""


class ObjectReplaced(Unavailable):
    """The requested version of the object was replaced, and the store keeps no old versions."""

    def __init__(self, where: Location) -> None:
        super().__init__(f"{where} was replaced while it was being read.")
        self.where = where


class DigestMismatch(TrainyardError):
    """The received bytes do not match the digest that the sender announced."""

    def __init__(self, algorithm: str, expected: str, computed: str) -> None:
        # The words of S3, then the values.
        super().__init__(
            f"The {algorithm} you specified did not match the calculated checksum: {expected} was sent with a body "
            f"whose {algorithm} is {computed}."
        )
        self.algorithm = algorithm


class InvalidPart(TrainyardError):
    """A part that a completion names is absent, changed or out of order. Number and ETag are as named there."""

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
    """What the writer says about an object, stored and returned unchanged.

    `headers` are the system ones by their HTTP name in lower case (content-type, cache-control, content-encoding,
    content-disposition, content-language, expires, x-amz-storage-class, x-amz-server-side-encryption…);
    `metadata` is the user's own. The headers that `encryption/headers.py` names ask the store for encryption; it adds
    what they leave open, such as the ARN of the key.
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
    """An object in a listing. `etag` has no quotes.

    `checksum` and `storage_class` are also None if the store would have to look up each object.
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
    """Everything about an object except its bytes. `parts` is empty unless it was uploaded in parts."""

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

    Pass `next_after` as `after` to get the next page; it is None on the last.
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
    """One page of uploads, ordered by key, then by start. The markers of the next page are None on the last."""

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
    """The required state of the target of a write, checked atomically with the write."""

    etag: str | None = None
    absent: bool = False


ANY_STATE = Precondition()


class ObjectReader(Protocol):
    """One version of one object, open for reading; later writes and deletes do not affect it."""

    info: ObjectInfo

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly `size` bytes from `offset`, fewer only at the end of the object."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class HasLocalFile(Protocol):
    """A reader of a local file, whose bytes the kernel can send. The reader owns and closes the file."""

    file: BinaryIO


@runtime_checkable
class ReadsNow(Protocol):
    """A reader that knows whether a read would wait."""

    def read_now(self, offset: int, size: int) -> bytes | None:
        """Read like `read` if the bytes are in memory and few; return None if that would take longer."""
        ...


@runtime_checkable
class IsLocal(Protocol):
    """A store on this machine, whose lookups take microseconds, less than a switch to another thread."""

    def open_local(self, where: Location) -> "ObjectReader":
        """Open an object; may be called on an event loop."""
        ...


class ObjectWriter(Protocol):
    """Writes one object or one part. Nothing is visible before `commit`; one thread at a time may use it.

    End it with either `commit` or `abort`. A failed `commit` has already aborted it. After the end, `abort` does
    nothing.
    """

    def write(self, data: bytes) -> None: ...

    def commit(
        self,
        *,
        now: datetime,
        expected: Sequence[Checksum] = (),
        md5: str | None = None,
        precondition: Precondition = ANY_STATE,
    ) -> "WriteResult":
        """Make it visible, complete and durable.

        Raises DigestMismatch if `md5` (base64) or `expected` differs from what arrived; the first of `expected` is
        stored as the checksum of the object. Raises PreconditionFailed if `precondition` does not hold, and NotFound
        if the bucket or the upload has been deleted.
        """
        ...

    def abort(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The written object or part. `encryption` are the headers that describe how it is encrypted."""

    etag: str
    size: int
    modified_at: datetime
    checksum: Checksum | None = None
    encryption: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewObject:
    """A small object with its whole body, and the precondition of its write."""

    where: Location
    body: bytes
    attributes: Attributes
    precondition: Precondition = ANY_STATE


@runtime_checkable
class WritesBatches(Protocol):
    """A store that writes many small objects at once for little more than the cost of one."""

    def put_batch(self, objects: Sequence[NewObject], *, now: datetime) -> "Sequence[WriteResult | TrainyardError]":
        """Put all objects atomically, so that a reader sees all or none; return the outcome of each.

        If one cannot be put, because its precondition does not hold or its bucket is gone, the others still are. An
        error that affects all of them is raised, and then none is put.
        """
        ...


Pause = Callable[[float], None]


class ObjectVersion(Protocol):
    """One version of an object on another machine; any thread may read it."""

    @property
    def where(self) -> Location: ...

    @property
    def size(self) -> int: ...

    @property
    def etag(self) -> str: ...

    @property
    def info(self) -> ObjectInfo | None:
        """Set if the object was looked up."""
        ...

    def read(self, offset: int, size: int, *, pause: Pause = time.sleep) -> bytes:
        """Read exactly `size` bytes from `offset`, fewer only at the end of the object.

        Transient failures are retried; `pause` waits that many seconds in between, and may raise to give up. Raises
        NotFound if the object is gone, ObjectReplaced if it is another version, Unavailable if the store fails.
        """
        ...


class ObjectVersions(Protocol):
    """Finds versions. `pause` is as for `ObjectVersion.read`."""

    def from_listing(self, where: Location, *, etag: str, size: int) -> ObjectVersion:
        """Return the version from a listing; makes no request."""
        ...

    def newest(self, where: Location, *, pause: Pause = time.sleep) -> ObjectVersion:
        """Look up the current version; NotFound if there is none."""
        ...


@runtime_checkable
class IsRemote(Protocol):
    """A store on another machine, from which versions of objects are read in ranges, with retries."""

    @property
    def versions(self) -> ObjectVersions: ...


@dataclass(frozen=True, slots=True)
class BucketUse:
    """How many objects a bucket has, and how many bytes they count, without unfinished uploads."""

    bucket: BucketRef
    objects: int
    bytes: int


@runtime_checkable
class CountsStorage(Protocol):
    """A store that tracks the usage and the limit of each account, and keeps a reserve free on its disk.

    A write that would exceed the account's limit raises StorageFull, at the latest in its `commit`, even beside
    concurrent writes; one that would use the reserve raises Unavailable. Objects and parts count their bytes and
    `OVERHEAD_BYTES`; a replacement counts only the difference.
    """

    @property
    def reserve(self) -> Reserve: ...

    def usage(self) -> Mapping[str, int]:
        """Return the bytes stored, by account."""
        ...

    def bucket_uses(self, account: str | None) -> "Sequence[BucketUse]":
        """Return the objects of each bucket of an account, or of all accounts, by account and name.

        This counts all objects, so that it takes longer the more there are.
        """
        ...

    def limits(self) -> Mapping[str, int]:
        """Return the limits in bytes by account; "*" is the default for accounts without their own."""
        ...

    def set_limit(self, account: str, limit_bytes: int | None) -> None:
        """Set a limit, or remove it with None. Existing objects stay."""
        ...

    def require_space(self, where: Location, size: int) -> None:
        """Raise what writing `size` bytes to a key would raise, before any bytes arrive."""
        ...


@runtime_checkable
class EncryptsObjects(Protocol):
    """A store that encrypts objects itself, with the keys of its keyring.

    An object is encrypted as its headers ask, otherwise as its bucket does, which is how its parts are encrypted too.
    The key is one of the account that owns the bucket: the named one, or a key that is created on demand. The content
    is encrypted wherever the store keeps it; readers get it decrypted. Sizes, ETags and checksums are those of the
    content. Writing raises NotFound with kind "encryption key" or "key alias" if the account has no such key. Writing
    and reading raise KeyUnusable if it is disabled, pending deletion or deleted, and Unavailable if the master key is
    missing. Looking an object up and
    deleting it need no key.
    """

    @property
    def keyring(self) -> "Keyring": ...

    def bucket_encryption(self, ref: BucketRef) -> "Encryption | None":
        """Return how objects of the bucket are encrypted that ask for no encryption."""
        ...

    def encrypt_bucket(self, ref: BucketRef, encryption: "Encryption | None") -> None:
        """Set that, or remove it with None. Existing objects stay as they are."""
        ...


class ObjectAccess(Protocol):
    """Stores bytes under a bucket of an account and a key: the part of the contract that instances need.

    Writes are atomic and durable: when a method returns, its effect survives kill -9 and power loss, and a reader sees
    the old object or the new one, never a mixture. All methods block and may be called from any thread.

    A missing bucket, key or upload raises NotFound with kind "bucket", "key" or "upload"; a full or read-only disk and
    an unreachable remote raise Unavailable; nothing else leaks from the back end. Keys are any UTF-8 text of 1 to 1024
    bytes; the caller has checked that.
    """

    def writer(
        self, where: Location, attributes: Attributes, *, algorithms: Sequence[ChecksumAlgorithm] = ()
    ) -> ObjectWriter:
        """Start writing an object. `algorithms` are the checksums that `commit` will compare or, if none, store."""
        ...

    def open(self, where: Location) -> ObjectReader: ...

    def info(self, where: Location) -> ObjectInfo: ...

    def list_objects(
        self, bucket: BucketRef, *, prefix: str = "", delimiter: str = "", after: str = "", limit: int = 1000
    ) -> Listing:
        """Return one page of at most `limit` keys and common prefixes strictly after `after`.

        The cost depends on the page, not on the bucket. `after` may be any text; from `next_after` it is the last key
        or common prefix of the page before.
        """
        ...

    def delete(self, where: Location, *, precondition: Precondition = ANY_STATE) -> bool:
        """Delete an object; return whether there was one. Deleting an absent key is not an error."""
        ...

    def close(self) -> None: ...


class ObjectStore(ObjectAccess, Protocol):
    """Everything that a yard does with its objects, with the same guarantees."""

    def create_bucket(self, ref: BucketRef, *, region: str, now: datetime) -> Bucket:
        """Create a bucket; AlreadyExists if the account has it."""
        ...

    def delete_bucket(self, ref: BucketRef) -> None:
        """Delete a bucket and its uploads in progress; Conflict if it holds an object."""
        ...

    def bucket(self, ref: BucketRef) -> Bucket: ...

    def buckets(self, *, account: str | None = None, name: str | None = None) -> Sequence[Bucket]:
        """Return buckets, optionally only of an account or of a name; ordered by name, then account."""
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
        """Copy an object; None keeps the attributes. PreconditionFailed if the source is not `source_etag`."""
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
        """Start writing part `number` (1 to 10,000); committing it again replaces it."""
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
        """Join the named parts into the object and delete the upload.

        Raises InvalidPart if a part is absent or has another ETag, or if the numbers do not ascend, and PartTooSmall
        if a part other than the last is under 5 MiB. After any failure the upload is unchanged.
        """
        ...

    def abort_upload(self, where: Location, upload_id: str) -> None: ...
