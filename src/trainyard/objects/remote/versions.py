"""Reading one version of an object of the remote in ranges: each retried, none of another version."""

import time
from dataclasses import dataclass

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location
from trainyard.objects.contract import ObjectInfo, Pause, Replaced
from trainyard.objects.remote.bucket import RemoteBucket
from trainyard.objects.remote.described import Described, DescribedObjects
from trainyard.objects.remote.faults import Absent, Moved
from trainyard.objects.remote.paths import Layout
from trainyard.objects.remote.patience import Patience, persist


@dataclass(frozen=True, slots=True)
class RemoteVersion:
    """One version of an object, which may be read from any thread. `info` is known where it was looked up."""

    where: Location
    size: int
    etag: str
    bucket: RemoteBucket
    path: str
    patience: Patience
    id: str | None = None  # where the remote bucket keeps versions
    info: ObjectInfo | None = None

    def read(self, offset: int, size: int, *, pause: Pause = time.sleep) -> bytes:
        wanted = min(size, self.size - offset)
        if wanted <= 0:
            return b""
        try:
            return persist(
                lambda: self.bucket.read_range(self.path, offset, wanted, etag=self.etag, version=self.id),
                where=self.where,
                patience=self.patience,
                pause=pause,
            )
        except Absent as error:
            raise NotFound("key", self.where.key) from error
        except Moved as error:
            raise Replaced(self.where) from error


class RemoteVersions:
    """Finds versions. `bucket` tries every request once, for the patience is ours."""

    def __init__(self, bucket: RemoteBucket, layout: Layout, *, patience: Patience) -> None:
        self._bucket = bucket
        self._layout = layout
        self._objects = DescribedObjects(bucket, layout)
        self._patience = patience

    def known(self, where: Location, *, etag: str, size: int) -> RemoteVersion:
        """The version that a list has told of; nothing is asked."""
        return RemoteVersion(where, size, etag, self._bucket, self._layout.object(where), self._patience)

    def newest(self, where: Location, *, pause: Pause = time.sleep) -> RemoteVersion:
        """The version that is there now; NotFound when there is none."""
        try:
            found = persist(lambda: self._objects.look(where), where=where, patience=self._patience, pause=pause)
        except Absent as error:
            raise NotFound("key", where.key) from error
        return self.of(found)

    def of(self, found: Described) -> RemoteVersion:
        """The version that was looked up or fetched."""
        info, path = found.info, found.fetched.object.path
        return RemoteVersion(
            info.where, info.size, info.etag, self._bucket, path, self._patience, id=found.fetched.version, info=info
        )
