"""An object store in one bucket of any S3."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import Conflict, NotFound
from trainyard.foundation.locations import BucketRef, Location, parse_s3_uri
from trainyard.objects.contract import (
    ANY_STATE,
    Attributes,
    Bucket,
    Checksum,
    ChecksumAlgorithm,
    ChecksumType,
    CompletedPart,
    Listing,
    ObjectInfo,
    ObjectPart,
    Precondition,
    Upload,
    UploadPage,
    WriteResult,
)
from trainyard.objects.encryption.headers import encryption_headers
from trainyard.objects.listing import first_key, object_page, roll_up, upload_page
from trainyard.objects.multipart import find_named_parts, new_upload, whole_checksum
from trainyard.objects.preconditions import NamedLocks, check_etag, check_precondition
from trainyard.objects.remote.bucket import RemoteAddress, RemoteBucket
from trainyard.objects.remote.buckets import BucketRecords
from trainyard.objects.remote.descriptions import DescribedObject, DescribedObjects
from trainyard.objects.remote.failures import SHORT_RETRIES, RemoteObjectMissing, RetryPolicy
from trainyard.objects.remote.paths import PartName, RemoteLayout
from trainyard.objects.remote.reader import RemoteReader
from trainyard.objects.remote.records import Description
from trainyard.objects.remote.staging import StagedBody, StagedWriter
from trainyard.objects.remote.uploads import RemoteUploads
from trainyard.objects.remote.versions import RemoteVersions

# The largest object that S3 copies in one request.
_MAX_COPY_BYTES = 5 << 30
# Keys in one page of the remote.
_PAGE = 1000
# Every write takes less time.
SWEEP_AGE = timedelta(days=1)


class RemoteObjects:
    """An `ObjectStore` in the bucket and under the prefix that `url` names, `s3://bucket/prefix`.

    Only one yard may use the prefix at a time. Bodies are collected in `staging` and sent on commit, so a reader sees
    the old object or the new one.

    Further guarantees depend on the remote:

    - ETags and modification times are the remote's.
    - A precondition is checked against all other writes of this process. Up to 5 MiB the write is also a conditional
      request, which a remote that supports them (Amazon S3 does) checks against the writes of others. Larger writes are
      not, since obstore has no conditional multipart upload.
    - If an object of up to 1 MiB is replaced, its readers are unaffected. Readers of larger ones are unaffected if they
      read sequentially or if the remote bucket keeps versions; otherwise they raise Unavailable.
    - Completing an upload fetches its parts and sends them again, and changing tags or attributes sends the object
      again: obstore can neither copy parts nor replace metadata within the remote.
    - Encryption is the remote's: it gets the headers that ask for it, with its own names of keys.
    - Listing buckets or uploads costs one request for each of them.

    `versions` reads objects in ranges, for callers that do not read sequentially. `retry_policy` applies to an
    overloaded remote.
    """

    def __init__(
        self,
        url: str,
        *,
        staging: Path,
        endpoint: str | None = None,
        region: str = "us-east-1",
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
        retry_policy: RetryPolicy = SHORT_RETRIES,
    ) -> None:
        location = parse_s3_uri(url, account="")
        address = RemoteAddress(location.bucket.name, endpoint, region, access_key_id, secret_access_key, session_token)
        layout = RemoteLayout(location.key)
        self._bucket = RemoteBucket(address, retry_policy)
        self._bucket.require(address)
        single_try = RemoteBucket(address, replace(retry_policy, tries=1))
        self.versions = RemoteVersions(single_try, layout, retry_policy=retry_policy)
        self._buckets = BucketRecords(self._bucket, layout)
        self._objects = DescribedObjects(self._bucket, layout)
        self._uploads = RemoteUploads(self._bucket, layout)
        self._locks = NamedLocks()
        self._staging = staging
        staging.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Do nothing; obstore closes its connections itself."""

    def create_bucket(self, ref: BucketRef, *, region: str, now: datetime) -> Bucket:
        bucket = Bucket(ref, region, now)
        with self._locks.holding(exclusive=[ref]):
            self._buckets.add(bucket)
        return bucket

    def delete_bucket(self, ref: BucketRef) -> None:
        with self._locks.holding(exclusive=[ref]):
            self._buckets.load(ref)
            if self._objects.has_any(ref):
                raise Conflict("bucket", ref.name, "still holds objects; delete them first")
            for upload in self._uploads.all(ref):
                self._uploads.forget(upload)
            self._objects.delete_descriptions(ref)
            self._buckets.forget(ref)

    def bucket(self, ref: BucketRef) -> Bucket:
        return self._buckets.load(ref)

    def buckets(self, *, account: str | None = None, name: str | None = None) -> Sequence[Bucket]:
        return self._buckets.all(account=account, name=name)

    def tag_bucket(self, ref: BucketRef, tags: Mapping[str, str]) -> None:
        with self._locks.holding(exclusive=[ref]):
            self._buckets.tag(ref, tags)

    def writer(
        self, where: Location, attributes: Attributes, *, algorithms: Sequence[ChecksumAlgorithm] = ()
    ) -> StagedWriter:
        self._check(where.bucket)

        def record(staged: StagedBody, written: WriteResult, precondition: Precondition) -> WriteResult:
            description = Description(where.key, attributes, written.checksum)
            with self._locked_keys([where]):
                etag = self._send(where, staged, description=description, precondition=precondition)
            return replace(written, etag=etag, encryption=encryption_headers(attributes))

        return StagedWriter(StagedBody(self._staging, algorithms), record=record)

    def open(self, where: Location) -> RemoteReader:
        try:
            described = self._objects.fetch(where)
            return RemoteReader(self.versions.of(described), described.fetched)
        except RemoteObjectMissing as error:
            raise self._not_found(where) from error

    def info(self, where: Location) -> ObjectInfo:
        return self._head(where).info

    def list_objects(
        self, bucket: BucketRef, *, prefix: str = "", delimiter: str = "", after: str = "", limit: int = 1000
    ) -> Listing:
        self._check(bucket)
        before, cut = prefix.encode(), delimiter.encode()
        start = first_key(before, cut, after=after.encode())
        seek = partial(self._objects.rows_from, bucket)
        return object_page(roll_up(seek, prefix=before, delimiter=cut, start=start, skip_rows=_PAGE), limit)

    def delete(self, where: Location, *, precondition: Precondition = ANY_STATE) -> bool:
        with self._locked_keys([where]):
            try:
                described = self._objects.head(where)
            except RemoteObjectMissing:
                check_precondition(precondition, where, etag=None)
                return False
            check_precondition(precondition, where, etag=described.info.etag)
            self._objects.delete(described)
            return True

    def delete_many(self, bucket: BucketRef, keys: Sequence[str]) -> None:
        self._check(bucket)
        with self._locked_keys({Location(bucket, key) for key in keys}):
            self._objects.delete_many(bucket, set(keys))

    def copy(
        self,
        source: Location,
        target: Location,
        *,
        now: datetime,  # noqa: ARG002 - the remote's clock counts
        attributes: Attributes | None = None,
        algorithm: ChecksumAlgorithm | None = None,
        source_etag: str | None = None,
        precondition: Precondition = ANY_STATE,
    ) -> ObjectInfo:
        with self._locked_keys({source, target}):
            described = self._head(source)
            check_etag(source_etag, source, etag=described.info.etag)
            can_copy = _can_copy_remotely(described.info, target, attributes=attributes, algorithm=algorithm)
            if can_copy and self._objects.has_full_path(target):
                if precondition != ANY_STATE:
                    check_precondition(precondition, target, etag=self._objects.etag(target))
                self._objects.copy(described, target)
            else:
                description = replace(described.description, key=target.key)
                if attributes is not None:
                    description = replace(description, attributes=attributes)
                self._resend(source, target, description=description, algorithm=algorithm, precondition=precondition)
            return self._head(target).info

    def tag_object(self, where: Location, tags: Mapping[str, str]) -> None:
        with self._locked_keys([where]):
            described = self._head(where)
            description = replace(described.description, attributes=replace(described.info.attributes, tags=tags))
            unchanged = Precondition(etag=described.info.etag)
            self._resend(where, where, description=description, algorithm=None, precondition=unchanged)

    def create_upload(
        self,
        where: Location,
        attributes: Attributes,
        *,
        now: datetime,
        algorithm: ChecksumAlgorithm | None = None,
        checksum_type: ChecksumType | None = None,
    ) -> Upload:
        upload = new_upload(where, attributes, now=now, algorithm=algorithm, checksum_type=checksum_type)
        with self._locks.holding(shared=[where.bucket]):
            self._check(where.bucket)
            self._uploads.add(upload)
        return upload

    def upload(self, where: Location, upload_id: str) -> Upload:
        self._check(where.bucket)
        return self._uploads.load(where, upload_id)

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
        self._check(bucket)
        before, cut, marker = prefix.encode(), delimiter.encode(), after_key.encode()
        start = first_key(before, cut, after=marker)
        if after_upload_id and start == marker + b"\0":
            # The remaining uploads of that key come first.
            start = marker
        known = [((upload.where.key.encode(), upload.id), upload) for upload in self._uploads.all(bucket)]

        def seek(key: bytes) -> Iterator[tuple[bytes, Upload]]:
            beginning = (key, after_upload_id + "\0" if key == marker and after_upload_id else "")
            first = bisect_left(known, beginning, key=lambda row: row[0])
            return ((key, upload) for (key, _), upload in known[first:])

        return upload_page(roll_up(seek, prefix=before, delimiter=cut, start=start), limit)

    def part_writer(
        self, where: Location, upload_id: str, number: int, *, algorithms: Sequence[ChecksumAlgorithm] = ()
    ) -> StagedWriter:
        upload = self.upload(where, upload_id)

        def record(staged: StagedBody, written: WriteResult, precondition: Precondition) -> WriteResult:
            assert precondition == ANY_STATE, "a part has no precondition"
            part = ObjectPart(number, written.size, written.etag, written.modified_at, written.checksum)
            with self._locks.holding(shared=[where.bucket, _lock_of(upload)]):
                self.upload(where, upload_id)
                self._uploads.put_part(upload, part, body=staged.body())
            return written

        counted = (*algorithms, upload.algorithm) if upload.algorithm else algorithms
        return StagedWriter(StagedBody(self._staging, counted), record=record, stored_algorithm=upload.algorithm)

    def parts(self, where: Location, upload_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[ObjectPart]:
        self.upload(where, upload_id)
        known = [name.part for name in self._uploads.parts(upload_id)]
        return [part for part in known if part.number > after][:limit]

    def complete_upload(
        self,
        where: Location,
        upload_id: str,
        parts: Sequence[CompletedPart],
        *,
        now: datetime,  # noqa: ARG002 - the remote's clock counts
        expected: Checksum | None = None,
        precondition: Precondition = ANY_STATE,
    ) -> ObjectInfo:
        upload = self.upload(where, upload_id)
        with self._locks.holding(exclusive=[where, _lock_of(upload)], shared=[where.bucket]):
            self.upload(where, upload_id)
            known = {name.part.number: name for name in self._uploads.parts(upload_id)}
            named = find_named_parts(parts, {number: name.part for number, name in known.items()})
            names = [known[part.number] for part in named]
            checksum = whole_checksum(
                upload, named, expected=expected, read=lambda part: self._uploads.chunks(upload_id, known[part.number])
            )
            description = Description(where.key, upload.attributes, checksum, named)
            self._join(upload, names, description=description, precondition=precondition)
            self._uploads.forget(upload)
            return self._head(where).info

    def abort_upload(self, where: Location, upload_id: str) -> None:
        upload = self.upload(where, upload_id)
        with self._locks.holding(exclusive=[_lock_of(upload)], shared=[where.bucket]):
            self._uploads.forget(self.upload(where, upload_id))

    def sweep(self) -> int:
        """Delete descriptions of deleted objects; return how many."""
        before = utc_now() - SWEEP_AGE
        return sum(self._objects.sweep(bucket.ref, before=before) for bucket in self.buckets())

    def _check(self, ref: BucketRef) -> None:
        """Raise NotFound unless the bucket exists. The lock keeps a bucket in deletion out of the cache."""
        with self._locks.holding(shared=[ref]):
            self._buckets.check(ref)

    @contextmanager
    def _locked_keys(self, locations: Collection[Location]) -> Iterator[None]:
        """Hold exclusive locks on keys, and shared ones on their buckets, which must exist."""
        buckets = {where.bucket for where in locations}
        with self._locks.holding(exclusive=locations, shared=buckets):
            for ref in sorted(buckets):
                self._check(ref)
            yield

    def _head(self, where: Location) -> DescribedObject:
        try:
            return self._objects.head(where)
        except RemoteObjectMissing as error:
            raise self._not_found(where) from error

    def _not_found(self, where: Location) -> NotFound:
        self._check(where.bucket)
        return NotFound("key", where.key)

    def _send(
        self, where: Location, staged: StagedBody, *, description: Description, precondition: Precondition
    ) -> str:
        return self._objects.put(
            where, staged.body(), size=staged.size, description=description, precondition=precondition
        )

    def _resend(
        self,
        source: Location,
        target: Location,
        *,
        description: Description,
        algorithm: ChecksumAlgorithm | None,
        precondition: Precondition,
    ) -> None:
        with closing(StagedBody(self._staging, [algorithm] if algorithm else [])) as staged:
            staged.fill(self._objects.fetch(source).fetched.chunks())
            if algorithm is not None:
                description = replace(description, checksum=staged.digests.checksum(algorithm, staged.chunks))
            self._send(target, staged, description=description, precondition=precondition)

    def _join(
        self, upload: Upload, names: Sequence[PartName], *, description: Description, precondition: Precondition
    ) -> None:
        # obstore cannot read one object while it writes another from the same thread, so use a local file.
        with closing(StagedBody(self._staging)) as staged:
            for name in names:
                staged.fill(self._uploads.chunks(upload.id, name))
            self._send(upload.where, staged, description=description, precondition=precondition)


def _lock_of(upload: Upload) -> tuple[str, str]:
    return "upload", upload.id


def _can_copy_remotely(
    source: ObjectInfo, target: Location, *, attributes: Attributes | None, algorithm: ChecksumAlgorithm | None
) -> bool:
    """Whether the remote's own copy, which changes nothing, gives the requested object."""
    if attributes is not None or source.where == target or source.size > _MAX_COPY_BYTES:
        return False
    known = source.checksum
    if algorithm is None:
        return True
    return known is not None and known.algorithm is algorithm and known.type is ChecksumType.FULL_OBJECT
