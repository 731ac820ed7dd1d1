"""Objects of the remote bucket with their descriptions: attributes, checksum and parts, which it does not store."""

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
from trainyard.objects.encryption.headers import encryption_of
from trainyard.objects.preconditions import check_precondition
from trainyard.objects.remote.bucket import Body, FetchedObject, RemoteBucket, RemoteObject
from trainyard.objects.remote.failures import RemoteObjectChanged, RemoteObjectMissing
from trainyard.objects.remote.paths import HASH_LENGTH, KeyFolder, RemoteLayout, decode_key, key_hash
from trainyard.objects.remote.records import Description, read_description

# Names of metadata fields.
_INLINE_FIELD = "trainyard"
_REFERENCE_FIELD = "trainyard-more"
# S3 allows 2 KB of metadata, including names.
_MAX_INLINE_LENGTH = 1800
_MAX_TRIES = 5


@dataclass(frozen=True, slots=True)
class DescribedObject:
    """An object as the remote returned it. `description_id` identifies a description that is stored separately."""

    info: ObjectInfo
    fetched: FetchedObject
    description_id: str | None

    @property
    def description(self) -> Description:
        info = self.info
        return Description(info.where.key, info.attributes, info.checksum, info.parts)


class DescribedObjects:
    """Reads and writes objects with their descriptions, which are in the metadata or, if too long, stored separately.

    A separate description is written before the object that refers to it and never changes. `sweep` deletes those that
    no object refers to any more, since finding them at every write would cost a request each.
    """

    def __init__(self, bucket: RemoteBucket, layout: RemoteLayout) -> None:
        self._bucket = bucket
        self._layout = layout

    def head(self, where: Location) -> DescribedObject:
        """Look up an object without its body; RemoteObjectMissing if there is none."""
        return self._load(where, with_body=False)

    def fetch(self, where: Location) -> DescribedObject:
        return self._load(where, with_body=True)

    def etag(self, where: Location) -> str | None:
        try:
            return self._bucket.head(self._layout.object(where)).object.etag
        except RemoteObjectMissing:
            return None

    def put(
        self, where: Location, body: Body, *, size: int, description: Description, precondition: Precondition
    ) -> str:
        """Write an object and return its ETag. The caller holds the key's lock against other threads."""
        if precondition != ANY_STATE:
            check_precondition(precondition, where, etag=self.etag(where))
        metadata = self._metadata(where, description)
        kind, encryption = _content_type(description.attributes), encryption_of(description.attributes)
        path = self._layout.object(where)
        if precondition == ANY_STATE or not isinstance(body, bytes):
            return self._bucket.put(path, body, size=size, metadata=metadata, content_type=kind, encryption=encryption)
        try:
            return self._bucket.put_if(
                path, body, etag=precondition.etag, metadata=metadata, content_type=kind, encryption=encryption
            )
        except RemoteObjectChanged as error:
            raise PreconditionFailed(f"{where} has just been changed by someone else.") from error

    def has_full_path(self, where: Location) -> bool:
        """Whether the path contains the whole key, so that a copied description needs no change."""
        folder = self._layout.objects(where.bucket)
        return not folder.is_shortened(folder.name(folder.path(where.key)))

    def copy(self, source: DescribedObject, target: Location) -> None:
        """Copy an object and its description within the remote."""
        if source.description_id is not None:
            body = replace(source.description, key=target.key).json().encode()
            self._bucket.put(self._description_path(target, source.description_id), body, size=len(body), metadata={})
        encryption = encryption_of(source.info.attributes)
        self._bucket.copy(self._layout.object(source.info.where), self._layout.object(target), encryption=encryption)

    def delete(self, described: DescribedObject) -> None:
        where = described.info.where
        descriptions = [self._description_path(where, described.description_id)] if described.description_id else []
        self._bucket.delete([self._layout.object(where), *descriptions])

    def delete_many(self, ref: BucketRef, keys: Iterable[str]) -> None:
        self._bucket.delete([self._layout.object(Location(ref, key)) for key in keys])

    def has_any(self, ref: BucketRef) -> bool:
        return next(self._bucket.list(self._layout.objects(ref).path_of_folder), None) is not None

    def delete_descriptions(self, ref: BucketRef) -> None:
        """Delete the separate descriptions of an empty bucket."""
        self._bucket.delete([each.path for each in self._bucket.list(self._layout.descriptions(ref))])

    def rows_from(self, ref: BucketRef, start: bytes) -> Iterator[tuple[bytes, ObjectSummary]]:
        """Yield the objects from the key `start` on, in the order of keys."""
        folder = self._layout.objects(ref)
        found = self._bucket.list(folder.path_of_folder, after=folder.path_before(start))
        # Names with the same stem may be out of order if one of them is shortened; there are few.
        for _, group in groupby(found, key=lambda each: folder.stem(folder.name(each.path))):
            rows = [(key, each) for each in group if (key := self._key(ref, folder, each)) is not None]
            for key, each in sorted(rows, key=lambda row: row[0]):
                if key.encode() >= start:
                    yield key.encode(), ObjectSummary(key, each.size, each.etag, each.modified_at)

    def sweep(self, ref: BucketRef, *, before: datetime) -> int:
        """Delete old descriptions that no object refers to; return how many."""
        strays = [
            each.path
            for each in self._bucket.list(self._layout.descriptions(ref))
            if each.modified_at < before and not self._is_referenced(ref, each.path)
        ]
        self._bucket.delete(strays)
        return len(strays)

    def _description_path(self, where: Location, description_id: str) -> str:
        return self._layout.description(where.bucket, key_hash(where.key), description_id)

    def _load(self, where: Location, *, with_body: bool) -> DescribedObject:
        path = self._layout.object(where)
        for _ in range(_MAX_TRIES):
            fetched = self._bucket.get(path) if with_body else self._bucket.head(path)
            try:
                description = self._description_of(where.bucket, key_hash(where.key), fetched.metadata)
            except RemoteObjectMissing:
                # The object was replaced, so its description is gone.
                continue
            known = (description.attributes, description.checksum, description.parts)
            remote = fetched.object
            info = ObjectInfo(where, remote.size, remote.etag, remote.modified_at, *known)
            return DescribedObject(info, fetched, fetched.metadata.get(_REFERENCE_FIELD))
        raise Unavailable(f"Cannot read the description of {where} from the remote store. Try again.")

    def _description_of(self, ref: BucketRef, key_digest: str, metadata: Mapping[str, str]) -> Description:
        if _REFERENCE_FIELD in metadata:
            text = (
                self._bucket.get(self._layout.description(ref, key_digest, metadata[_REFERENCE_FIELD])).read().decode()
            )
            return read_description(text)
        if _INLINE_FIELD in metadata:
            return read_description(metadata[_INLINE_FIELD])
        # Someone else wrote the object.
        kind = metadata.get("Content-Type")
        return Description("", Attributes({"content-type": kind} if kind else {}))

    def _metadata(self, where: Location, description: Description) -> dict[str, str]:
        text = description.json()
        if len(text) <= _MAX_INLINE_LENGTH:
            return {_INLINE_FIELD: text}
        description_id = secrets.token_hex(8)
        body = text.encode()
        self._bucket.put(self._description_path(where, description_id), body, size=len(body), metadata={})
        return {_REFERENCE_FIELD: description_id}

    def _key(self, ref: BucketRef, folder: KeyFolder, found: RemoteObject) -> str | None:
        name = folder.name(found.path)
        if not folder.is_shortened(name):
            return decode_key(name)
        try:
            metadata = self._bucket.head(found.path).metadata
            return self._description_of(ref, name[-HASH_LENGTH:], metadata).key
        # It was deleted since it was listed.
        except RemoteObjectMissing:
            return None

    def _is_referenced(self, ref: BucketRef, path: str) -> bool:
        key = read_description(self._bucket.get(path).read().decode()).key
        try:
            metadata = self._bucket.head(self._layout.object(Location(ref, key))).metadata
        except RemoteObjectMissing:
            return False
        return metadata.get(_REFERENCE_FIELD) == path.rpartition("/")[2]


def _content_type(attributes: Attributes) -> str:
    """Return the content type for the remote's own metadata, for others who read the bucket."""
    kind = attributes.headers.get("content-type", "")
    return kind if kind.isascii() and kind.isprintable() else ""
