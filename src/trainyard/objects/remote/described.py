"""Objects of the remote bucket together with what we know of them and the remote does not."""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import (
    ANY_STATE,
    Attributes,
    ObjectInfo,
    ObjectSummary,
    Precondition,
    PreconditionFailed,
)
from trainyard.objects.preconditions import check_precondition
from trainyard.objects.remote.bucket import Body, Fetched, RemoteBucket, RemoteObject
from trainyard.objects.remote.faults import Absent, Moved
from trainyard.objects.remote.paths import HASH_LENGTH, KeyFolder, Layout, decode_key, key_hash
from trainyard.objects.remote.records import Description, read_description

_INLINE = "trainyard"  # names of metadata fields
_MORE = "trainyard-more"
_LONGEST_INLINE = 1800  # S3 takes 2 KB of metadata, names included
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Described:
    """An object as the remote answered it. `more_id` tells where a long description lies."""

    info: ObjectInfo
    fetched: Fetched
    more_id: str | None

    @property
    def description(self) -> Description:
        info = self.info
        return Description(info.where.key, info.attributes, info.checksum, info.parts)


class DescribedObjects:
    """Reads and writes objects with their descriptions, in the object's metadata or, where too long, beside it.

    A description beside it is written before the object that points to it, and never changed. One that no object points
    to any more is left for `sweep`, since finding it at every write would cost a request each.
    """

    def __init__(self, bucket: RemoteBucket, layout: Layout) -> None:
        self._bucket = bucket
        self._layout = layout

    def look(self, where: Location) -> Described:
        """Without the body; Absent when there is none."""
        return self._read(where, with_body=False)

    def fetch(self, where: Location) -> Described:
        return self._read(where, with_body=True)

    def etag(self, where: Location) -> str | None:
        try:
            return self._bucket.head(self._layout.object(where)).object.etag
        except Absent:
            return None

    def put(
        self, where: Location, body: Body, *, size: int, description: Description, precondition: Precondition
    ) -> str:
        """Write and give the ETag. The caller holds the key alone, so nobody in this process comes between."""
        if precondition != ANY_STATE:
            check_precondition(precondition, where, etag=self.etag(where))
        metadata = self._metadata(where, description)
        kind = _content_type(description.attributes)
        path = self._layout.object(where)
        if precondition == ANY_STATE or not isinstance(body, bytes):
            return self._bucket.put(path, body, size=size, metadata=metadata, content_type=kind)
        try:
            return self._bucket.put_if(path, body, etag=precondition.etag, metadata=metadata, content_type=kind)
        except Moved as error:
            raise PreconditionFailed(f"{where} was changed by someone else at this moment.") from error

    def names_itself(self, where: Location) -> bool:
        """Whether the key can be read from the path of an object, so that another's description serves it too."""
        folder = self._layout.objects(where.bucket)
        return not folder.is_shortened(folder.name(folder.path(where.key)))

    def copy(self, source: Described, target: Location) -> None:
        """Copy inside the remote, with its description."""
        if source.more_id is not None:
            body = replace(source.description, key=target.key).json().encode()
            self._bucket.put(self._beside(target, source.more_id), body, size=len(body), metadata={})
        self._bucket.copy(self._layout.object(source.info.where), self._layout.object(target))

    def delete(self, described: Described) -> None:
        where = described.info.where
        beside = [self._beside(where, described.more_id)] if described.more_id else []
        self._bucket.delete([self._layout.object(where), *beside])

    def delete_many(self, ref: BucketRef, keys: Iterable[str]) -> None:
        self._bucket.delete([self._layout.object(Location(ref, key)) for key in keys])

    def has_any(self, ref: BucketRef) -> bool:
        return next(self._bucket.list(self._layout.objects(ref).path_of_folder), None) is not None

    def forget_all(self, ref: BucketRef) -> None:
        """Delete the descriptions left beside objects of a bucket that is empty."""
        self._bucket.delete([each.path for each in self._bucket.list(self._layout.all_more(ref))])

    def rows_from(self, ref: BucketRef, start: bytes) -> Iterator[tuple[bytes, ObjectSummary]]:
        """The objects whose key is `start` or later, in the order of keys."""
        folder = self._layout.objects(ref)
        found = self._bucket.list(folder.path_of_folder, after=folder.before(start))
        # Names that share a stem may be out of order, if one of them is shortened; they are few.
        for _, group in groupby(found, key=lambda each: folder.stem(folder.name(each.path))):
            rows = [(key, each) for each in group if (key := self._key(ref, folder, each)) is not None]
            for key, each in sorted(rows, key=lambda row: row[0]):
                if key.encode() >= start:
                    yield key.encode(), ObjectSummary(key, each.size, each.etag, each.modified_at)

    def sweep(self, ref: BucketRef, *, before: datetime) -> int:
        """Delete descriptions written before some time that no object points to; how many."""
        strays = [
            each.path
            for each in self._bucket.list(self._layout.all_more(ref))
            if each.modified_at < before and not self._is_used(ref, each.path)
        ]
        self._bucket.delete(strays)
        return len(strays)

    def _beside(self, where: Location, more_id: str) -> str:
        return self._layout.more(where.bucket, key_hash(where.key), more_id)

    def _read(self, where: Location, *, with_body: bool) -> Described:
        path = self._layout.object(where)
        for _ in range(_ATTEMPTS):
            fetched = self._bucket.get(path) if with_body else self._bucket.head(path)
            try:
                description = self._description_of(where.bucket, key_hash(where.key), fetched.metadata)
            except Absent:
                continue  # replaced since, so its description is gone
            known = (description.attributes, description.checksum, description.parts)
            remote = fetched.object
            info = ObjectInfo(where, remote.size, remote.etag, remote.modified_at, *known)
            return Described(info, fetched, fetched.metadata.get(_MORE))
        raise Unavailable(f"What is known of {where} cannot be read from the remote store. Try again.")

    def _description_of(self, ref: BucketRef, hashed: str, metadata: Mapping[str, str]) -> Description:
        if _MORE in metadata:
            text = self._bucket.get(self._layout.more(ref, hashed, metadata[_MORE])).read().decode()
            return read_description(text)
        if _INLINE in metadata:
            return read_description(metadata[_INLINE])
        kind = metadata.get("Content-Type")  # someone else wrote it
        return Description("", Attributes({"content-type": kind} if kind else {}))

    def _metadata(self, where: Location, description: Description) -> dict[str, str]:
        text = description.json()
        if len(text) <= _LONGEST_INLINE:
            return {_INLINE: text}
        more_id = secrets.token_hex(8)
        body = text.encode()
        self._bucket.put(self._beside(where, more_id), body, size=len(body), metadata={})
        return {_MORE: more_id}

    def _key(self, ref: BucketRef, folder: KeyFolder, found: RemoteObject) -> str | None:
        name = folder.name(found.path)
        if not folder.is_shortened(name):
            return decode_key(name)
        try:
            metadata = self._bucket.head(found.path).metadata
            return self._description_of(ref, name[-HASH_LENGTH:], metadata).key
        except Absent:  # deleted since
            return None

    def _is_used(self, ref: BucketRef, path: str) -> bool:
        key = read_description(self._bucket.get(path).read().decode()).key
        try:
            metadata = self._bucket.head(self._layout.object(Location(ref, key))).metadata
        except Absent:
            return False
        return metadata.get(_MORE) == path.rpartition("/")[2]


def _content_type(attributes: Attributes) -> str:
    """Also told to the remote, for others who look there."""
    kind = attributes.headers.get("content-type", "")
    return kind if kind.isascii() and kind.isprintable() else ""
