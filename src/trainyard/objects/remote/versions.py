"""Reads one version of a remote object in ranges, each retried, never of another version."""

import time
from dataclasses import dataclass

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location
from trainyard.objects.contract import ObjectInfo, ObjectReplaced, Pause
from trainyard.objects.remote.bucket import RemoteBucket
from trainyard.objects.remote.descriptions import DescribedObject, DescribedObjects
from trainyard.objects.remote.failures import RemoteObjectChanged, RemoteObjectMissing, RetryPolicy, retry
from trainyard.objects.remote.paths import RemoteLayout


@dataclass(frozen=True, slots=True)
class RemoteVersion:
    """One version of an object, readable from any thread. `info` is set if it was looked up."""

    where: Location
    size: int
    etag: str
    bucket: RemoteBucket
    path: str
    retry_policy: RetryPolicy
    # Set if the remote bucket keeps versions.
    id: str | None = None
    info: ObjectInfo | None = None

    def read(self, offset: int, size: int, *, pause: Pause = time.sleep) -> bytes:
        wanted = min(size, self.size - offset)
        if wanted <= 0:
            return b""
        try:
            return retry(
                lambda: self.bucket.read_range(self.path, offset, wanted, etag=self.etag, version=self.id),
                where=self.where,
                retry_policy=self.retry_policy,
                pause=pause,
            )
        except RemoteObjectMissing as error:
            raise NotFound("key", self.where.key) from error
        except RemoteObjectChanged as error:
            raise ObjectReplaced(self.where) from error


class RemoteVersions:
    """Finds versions. `bucket` must not retry requests, since this class does."""

    def __init__(self, bucket: RemoteBucket, layout: RemoteLayout, *, retry_policy: RetryPolicy) -> None:
        self._bucket = bucket
        self._layout = layout
        self._objects = DescribedObjects(bucket, layout)
        self._retry_policy = retry_policy

    def from_listing(self, where: Location, *, etag: str, size: int) -> RemoteVersion:
        """Return the version from a listing; makes no request."""
        return RemoteVersion(where, size, etag, self._bucket, self._layout.object(where), self._retry_policy)

    def newest(self, where: Location, *, pause: Pause = time.sleep) -> RemoteVersion:
        """Look up the current version; NotFound if there is none."""
        try:
            described = retry(
                lambda: self._objects.head(where), where=where, retry_policy=self._retry_policy, pause=pause
            )
        except RemoteObjectMissing as error:
            raise NotFound("key", where.key) from error
        return self.of(described)

    def of(self, described: DescribedObject) -> RemoteVersion:
        """Return the version of an object that was looked up or fetched."""
        info, path = described.info, described.fetched.object.path
        return RemoteVersion(
            info.where,
            info.size,
            info.etag,
            self._bucket,
            path,
            self._retry_policy,
            id=described.fetched.version,
            info=info,
        )
