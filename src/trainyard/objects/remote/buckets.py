"""Records of buckets, stored in the remote bucket."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.foundation.locations import BucketRef
from trainyard.objects.contract import Bucket
from trainyard.objects.remote.bucket import RemoteBucket
from trainyard.objects.remote.failures import RemoteObjectChanged, RemoteObjectMissing
from trainyard.objects.remote.paths import RemoteLayout
from trainyard.objects.remote.records import bucket_json, read_bucket_json

_READERS = 8


class BucketRecords:
    """Stores a small object per bucket. Caches that a bucket exists, so that a write needs no request for it."""

    def __init__(self, bucket: RemoteBucket, layout: RemoteLayout) -> None:
        self._bucket = bucket
        self._layout = layout
        self._known_refs: set[BucketRef] = set()

    def add(self, bucket: Bucket) -> None:
        path = self._layout.bucket_record(bucket.ref)
        try:
            self._bucket.put_if(path, bucket_json(bucket), etag=None, metadata={})
        except RemoteObjectChanged as error:
            raise AlreadyExists("bucket", bucket.ref.name) from error

    def load(self, ref: BucketRef) -> Bucket:
        try:
            text = self._bucket.get(self._layout.bucket_record(ref)).read()
        except RemoteObjectMissing as error:
            raise NotFound("bucket", ref.name) from error
        return read_bucket_json(ref, text)

    def check(self, ref: BucketRef) -> None:
        if ref not in self._known_refs:
            self.load(ref)
            self._known_refs.add(ref)

    def tag(self, ref: BucketRef, tags: Mapping[str, str]) -> None:
        text = bucket_json(replace(self.load(ref), tags=tags))
        self._bucket.put(self._layout.bucket_record(ref), text, size=len(text), metadata={})

    def all(self, *, account: str | None, name: str | None) -> Sequence[Bucket]:
        """Return buckets by name, then account. Takes one request per bucket."""
        found = [_ref(each.path) for each in self._bucket.list(self._layout.bucket_records)]
        wanted = [ref for ref in found if account in (None, ref.account) and name in (None, ref.name)]
        with ThreadPoolExecutor(_READERS) as pool:
            loaded = pool.map(self._load_listed, wanted)
            return sorted((each for each in loaded if each), key=lambda bucket: (bucket.ref.name, bucket.ref.account))

    def forget(self, ref: BucketRef) -> None:
        self._known_refs.discard(ref)
        self._bucket.delete([self._layout.bucket_record(ref)])

    def _load_listed(self, ref: BucketRef) -> Bucket | None:
        try:
            return self.load(ref)
        # It was deleted since it was listed.
        except NotFound:
            return None


def _ref(path: str) -> BucketRef:
    account, name = path.split("/")[-2:]
    return BucketRef(account, name)
