"""Multipart uploads in the remote bucket."""

import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import ObjectPart, Upload
from trainyard.objects.encryption.headers import encryption_of
from trainyard.objects.remote.bucket import Body, RemoteBucket
from trainyard.objects.remote.failures import RemoteObjectMissing
from trainyard.objects.remote.paths import PartName, RemoteLayout, read_part_name
from trainyard.objects.remote.records import read_upload_json, upload_json

_ID = re.compile(r"[0-9a-f]{1,64}")
_READERS = 8


class RemoteUploads:
    """Stores each upload as a small object, and each part as an object whose name describes it fully."""

    def __init__(self, bucket: RemoteBucket, layout: RemoteLayout) -> None:
        self._bucket = bucket
        self._layout = layout

    def add(self, upload: Upload) -> None:
        body = upload_json(upload)
        path = self._layout.upload(upload.where.bucket, upload.id)
        self._bucket.put(path, body, size=len(body), metadata={})

    def load(self, where: Location, upload_id: str) -> Upload:
        # The id becomes part of a path.
        if not _ID.fullmatch(upload_id):
            raise NotFound("upload", upload_id)
        try:
            upload = self._load(where.bucket, upload_id)
        except RemoteObjectMissing as error:
            raise NotFound("upload", upload_id) from error
        if upload.where != where:
            raise NotFound("upload", upload_id)
        return upload

    def all(self, ref: BucketRef) -> Sequence[Upload]:
        """Return the uploads of a bucket by key, then by start. Takes one request per upload."""
        paths = [found.path for found in self._bucket.list(self._layout.uploads(ref))]
        with ThreadPoolExecutor(_READERS) as pool:
            loaded = pool.map(lambda path: self._load_listed(ref, path), paths)
            return sorted((each for each in loaded if each), key=lambda upload: (upload.where.key, upload.id))

    def put_part(self, upload: Upload, part: ObjectPart, *, body: Body) -> None:
        path, encryption = (
            self._layout.part(upload.id, PartName(time.time_ns(), part)),
            encryption_of(upload.attributes),
        )
        self._bucket.put(path, body, size=part.size, metadata={}, encryption=encryption)

    def parts(self, upload_id: str) -> Sequence[PartName]:
        """Return the newest part of each number, ordered by number."""
        found = self._bucket.list(self._layout.parts(upload_id))
        names = sorted((read_part_name(each.path.rpartition("/")[2]) for each in found), key=_order)
        return [list(same)[-1] for _, same in groupby(names, key=lambda name: name.part.number)]

    def chunks(self, upload_id: str, name: PartName) -> Iterator[bytes]:
        return self._bucket.get(self._layout.part(upload_id, name)).chunks()

    def forget(self, upload: Upload) -> None:
        """Delete an upload: its record first, so that nobody sees parts that a crash leaves behind."""
        self._bucket.delete([self._layout.upload(upload.where.bucket, upload.id)])
        self._bucket.delete([each.path for each in self._bucket.list(self._layout.parts(upload.id))])

    def _load(self, ref: BucketRef, upload_id: str) -> Upload:
        text = self._bucket.get(self._layout.upload(ref, upload_id)).read()
        return read_upload_json(ref, upload_id, text)

    def _load_listed(self, ref: BucketRef, path: str) -> Upload | None:
        try:
            return self._load(ref, path.rpartition("/")[2])
        # It was completed or aborted since it was listed.
        except RemoteObjectMissing:
            return None


def _order(name: PartName) -> tuple[int, int]:
    return name.part.number, name.order
