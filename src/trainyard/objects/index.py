"""The index: which keys exist, their attributes, and the data file of each."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import AlreadyExists, Conflict, NotFound, TrainyardError
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Bucket, Listing, Precondition, PreconditionFailed, StorageFull
from trainyard.objects.database import Database
from trainyard.objects.index_data import DataIndex
from trainyard.objects.index_pages import list_objects
from trainyard.objects.index_schema import BUCKET_ENCRYPTION_SCHEMA, PLAIN_VERSION, SCHEMA, VERSION
from trainyard.objects.index_uploads import UploadIndex
from trainyard.objects.index_usage import USAGE_SCHEMA, UsageIndex
from trainyard.objects.object_rows import check_target, find_bucket, put_object, read_object
from trainyard.objects.rows import StoredObject, attributes_text, read_attributes, read_bucket, tags_text

# SQLite allows 32,766 parameters.
_KEYS_PER_STATEMENT = 1000

_OBJECT = """
SELECT o.data, o.size, o.etag, o.modified_at, o.checksum, o.attributes, o.parts
FROM bucket b LEFT JOIN object o ON o.bucket = b.id AND o.key = ? WHERE b.account = ? AND b.name = ?
"""

_DATA_FILES = """
SELECT json_group_array(json_array(o.data, o.size, o.etag))
FROM json_each(?) wanted LEFT JOIN object o ON o.key = CAST(wanted.value AS BLOB)
    AND o.bucket = (SELECT id FROM bucket WHERE account = ? AND name = ?)
"""


_BUCKET_TARGET = """
SELECT id, region, headers FROM bucket LEFT JOIN bucket_encryption ON bucket = id WHERE account = ? AND name = ?
"""


@dataclass(frozen=True, slots=True)
class BucketTarget:
    """A bucket that is written to, and the headers of the encryption of its objects that ask for none."""

    id: int
    region: str
    encryption: Mapping[str, str]


class Index:
    """The rows behind `FilesystemObjects`. Each method is one transaction, durable when it returns."""

    def __init__(self, path: Path) -> None:
        additions = {"usage": USAGE_SCHEMA, "bucket_encryption": BUCKET_ENCRYPTION_SCHEMA}
        self._database = Database(
            path, schema=SCHEMA, version=VERSION, first_version=PLAIN_VERSION, additions=additions
        )
        self.uploads, self.data = UploadIndex(self._database), DataIndex(self._database)
        self.usage = UsageIndex(self._database)

    def close(self) -> None:
        self._database.close()

    def back_up(self, target: Path) -> None:
        self._database.back_up(target)

    def add_bucket(self, bucket: Bucket) -> None:
        ref = bucket.ref

        def work(connection: sqlite3.Connection) -> None:
            added = connection.execute(
                "INSERT INTO bucket (account, name, region, created_at, tags) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                (ref.account, ref.name, bucket.region, to_micros(bucket.created_at), tags_text(bucket.tags)),
            )
            if added.rowcount == 0:
                raise AlreadyExists("bucket", ref.name)

        self._database.write(work)

    def delete_bucket(self, ref: BucketRef) -> None:
        def work(connection: sqlite3.Connection) -> None:
            bucket = find_bucket(connection, ref)
            if connection.execute("SELECT 1 FROM object WHERE bucket = ? LIMIT 1", (bucket,)).fetchone():
                raise Conflict("bucket", ref.name, "still holds objects; delete them first")
            connection.execute("DELETE FROM bucket WHERE id = ?", (bucket,))

        self._database.write(work)

    def bucket_id(self, ref: BucketRef) -> int:
        with self._database.reading() as connection:
            return find_bucket(connection, ref)

    def bucket(self, ref: BucketRef) -> Bucket:
        found = self.buckets(account=ref.account, name=ref.name)
        if not found:
            raise NotFound("bucket", ref.name)
        return found[0]

    def buckets(self, *, account: str | None, name: str | None) -> Sequence[Bucket]:
        return self._database.rows(
            "SELECT json_group_array(json_array(account, name, region, created_at, tags)) FROM (SELECT * FROM bucket "
            "WHERE (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR name = ?2) ORDER BY name, account)",
            (account, name),
            read=read_bucket,
        )

    def tag_bucket(self, ref: BucketRef, tags: Mapping[str, str]) -> None:
        text = tags_text(tags)

        def work(connection: sqlite3.Connection) -> None:
            bucket = find_bucket(connection, ref)
            connection.execute("UPDATE bucket SET tags = ? WHERE id = ?", (text, bucket))

        self._database.write(work)

    def bucket_target(self, ref: BucketRef) -> "BucketTarget":
        """Return what a write to the bucket needs to know; NotFound if there is none."""
        target = self._database.row(_BUCKET_TARGET, (ref.account, ref.name), read=_read_target)
        if target is None:
            raise NotFound("bucket", ref.name)
        return target

    def encrypt_bucket(self, ref: BucketRef, headers: Mapping[str, str] | None) -> None:
        def work(connection: sqlite3.Connection) -> None:
            bucket = find_bucket(connection, ref)
            if headers is None:
                connection.execute("DELETE FROM bucket_encryption WHERE bucket = ?", (bucket,))
            else:
                row = (bucket, json.dumps(dict(headers)))
                connection.execute("INSERT OR REPLACE INTO bucket_encryption (bucket, headers) VALUES (?, ?)", row)

        self._database.write(work)

    def allow_encrypted_objects(self) -> None:
        """Mark the index for older releases, which would return the encrypted bytes."""
        self._database.raise_version()

    def object(self, where: Location) -> StoredObject:
        bucket = where.bucket
        parameters = (where.key.encode(), bucket.account, bucket.name)
        stored = self._database.row(_OBJECT, parameters, read=partial(read_object, where))
        if stored is None:
            raise NotFound("bucket", bucket.name)
        return stored

    def data_files(self, ref: BucketRef, keys: Sequence[str]) -> list[tuple[str | None, int, str]]:
        """Return data file, size and ETag of each of these objects, in order; the file is None for a missing object.

        Keys and rows are passed as one JSON value each, which takes a third of the time.
        """
        parameters = (json.dumps(list(keys)), ref.account, ref.name)
        return self._database.row(_DATA_FILES, parameters, read=json.loads) or []

    def put_object(self, bucket: int, stored: StoredObject, *, precondition: Precondition) -> bool:
        """Put an object; return whether it replaced another data file."""
        return self._database.write(partial(put_object, bucket=bucket, stored=stored, precondition=precondition))

    def put_objects(self, objects: Sequence[tuple[StoredObject, Precondition]]) -> Sequence[bool | TrainyardError]:
        """Put objects; return for each whether it replaced another data file, or why it was not put."""

        def work(connection: sqlite3.Connection) -> list[bool | TrainyardError]:
            return [_try_put_object(connection, stored, precondition) for stored, precondition in objects]

        return self._database.write(work)

    def delete_object(self, where: Location, precondition: Precondition) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            bucket = find_bucket(connection, where.bucket)
            check_target(connection, bucket, where, precondition=precondition)
            deleted = connection.execute(
                "DELETE FROM object WHERE bucket = ? AND key = ?", (bucket, where.key.encode())
            )
            return deleted.rowcount > 0

        return self._database.write(work)

    def delete_objects(self, ref: BucketRef, keys: Sequence[str]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            bucket = find_bucket(connection, ref)
            for first in range(0, len(keys), _KEYS_PER_STATEMENT):
                some = [key.encode() for key in keys[first : first + _KEYS_PER_STATEMENT]]
                marks = ", ".join("?" * len(some))
                connection.execute(f"DELETE FROM object WHERE bucket = ? AND key IN ({marks})", (bucket, *some))

        self._database.write(work)

    def tag_object(self, where: Location, tags: Mapping[str, str]) -> None:
        key_bytes = where.key.encode()

        def work(connection: sqlite3.Connection) -> None:
            bucket = find_bucket(connection, where.bucket)
            row = connection.execute(
                "SELECT attributes FROM object WHERE bucket = ? AND key = ?", (bucket, key_bytes)
            ).fetchone()
            if row is None:
                raise NotFound("key", where.key)
            attributes = replace(read_attributes(row[0]), tags=tags)
            connection.execute(
                "UPDATE object SET attributes = ? WHERE bucket = ? AND key = ?",
                (attributes_text(attributes), bucket, key_bytes),
            )

        self._database.write(work)

    def list_objects(self, ref: BucketRef, *, prefix: str, delimiter: str, after: str, limit: int) -> Listing:
        bucket = self.bucket_id(ref)
        return list_objects(self._database, bucket, prefix=prefix, delimiter=delimiter, after=after, limit=limit)


def _read_target(bucket: int, region: str, headers: str | None) -> BucketTarget:
    return BucketTarget(bucket, region, {} if headers is None else json.loads(headers))


def _try_put_object(
    connection: sqlite3.Connection, stored: StoredObject, precondition: Precondition
) -> bool | TrainyardError:
    try:
        bucket = find_bucket(connection, stored.info.where.bucket)
        return put_object(connection, bucket=bucket, stored=stored, precondition=precondition)
    # These are raised before anything is changed.
    except (NotFound, PreconditionFailed, StorageFull) as error:
        return error
