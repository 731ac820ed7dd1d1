"""The index: which keys exist, what is known of them, and which data file holds each."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import AlreadyExists, Conflict, NotFound, TrainyardError
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Bucket, Listing, Precondition, PreconditionFailed, StorageFull
from trainyard.objects.database import Database
from trainyard.objects.index_data import DataIndex
from trainyard.objects.index_pages import list_objects
from trainyard.objects.index_schema import SCHEMA, VERSION
from trainyard.objects.index_uploads import UploadIndex
from trainyard.objects.index_usage import USAGE_SCHEMA, UsageIndex
from trainyard.objects.object_rows import check_target, find_bucket, put_object, read_object
from trainyard.objects.rows import StoredObject, attributes_text, read_attributes, read_bucket, tags_text

_AT_ONCE = 1000  # keys in one statement; SQLite takes 32,766

_OBJECT = """
SELECT o.data, o.size, o.etag, o.modified_at, o.checksum, o.attributes, o.parts
FROM bucket b LEFT JOIN object o ON o.bucket = b.id AND o.key = ? WHERE b.account = ? AND b.name = ?
"""

_DATA_FILES = """
SELECT json_group_array(json_array(o.data, o.size, o.etag))
FROM json_each(?) wanted LEFT JOIN object o ON o.key = CAST(wanted.value AS BLOB)
    AND o.bucket = (SELECT id FROM bucket WHERE account = ? AND name = ?)
"""


class Index:
    """The rows behind `FilesystemObjects`. Each method is one transaction, durable when it returns."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, schema=SCHEMA, version=VERSION, additions={"usage": USAGE_SCHEMA})
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
        return self._database.listed(
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

    def object(self, where: Location) -> StoredObject:
        bucket = where.bucket
        parameters = (where.key.encode(), bucket.account, bucket.name)
        stored = self._database.row(_OBJECT, parameters, read=partial(read_object, where))
        if stored is None:
            raise NotFound("bucket", bucket.name)
        return stored

    def data_files(self, ref: BucketRef, keys: Sequence[str]) -> list[tuple[str | None, int, str]]:
        """Of each of these objects, in their order: the data file, its size, and the ETag; None for no file.

        Keys and rows go in and out as one value each, which takes a third of the time.
        """
        parameters = (json.dumps(list(keys)), ref.account, ref.name)
        return self._database.row(_DATA_FILES, parameters, read=json.loads) or []

    def put_object(self, bucket: int, stored: StoredObject, *, precondition: Precondition) -> bool:
        """Whether another data file was replaced."""

        return self._database.write(partial(put_object, bucket=bucket, stored=stored, precondition=precondition))

    def put_objects(self, objects: Sequence[tuple[StoredObject, Precondition]]) -> Sequence[bool | TrainyardError]:
        """Of each: whether another data file was replaced, or why it was not put."""

        def work(connection: sqlite3.Connection) -> list[bool | TrainyardError]:
            return [_put_or_why_not(connection, stored, precondition) for stored, precondition in objects]

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
            for first in range(0, len(keys), _AT_ONCE):
                some = [key.encode() for key in keys[first : first + _AT_ONCE]]
                marks = ", ".join("?" * len(some))
                connection.execute(f"DELETE FROM object WHERE bucket = ? AND key IN ({marks})", (bucket, *some))

        self._database.write(work)

    def tag_object(self, where: Location, tags: Mapping[str, str]) -> None:
        place = where.key.encode()

        def work(connection: sqlite3.Connection) -> None:
            bucket = find_bucket(connection, where.bucket)
            row = connection.execute(
                "SELECT attributes FROM object WHERE bucket = ? AND key = ?", (bucket, place)
            ).fetchone()
            if row is None:
                raise NotFound("key", where.key)
            attributes = replace(read_attributes(row[0]), tags=tags)
            connection.execute(
                "UPDATE object SET attributes = ? WHERE bucket = ? AND key = ?",
                (attributes_text(attributes), bucket, place),
            )

        self._database.write(work)

    def list_objects(self, ref: BucketRef, *, prefix: str, delimiter: str, after: str, limit: int) -> Listing:
        bucket = self.bucket_id(ref)
        return list_objects(self._database, bucket, prefix=prefix, delimiter=delimiter, after=after, limit=limit)


def _put_or_why_not(
    connection: sqlite3.Connection, stored: StoredObject, precondition: Precondition
) -> bool | TrainyardError:
    try:
        bucket = find_bucket(connection, stored.info.where.bucket)
        return put_object(connection, bucket=bucket, stored=stored, precondition=precondition)
    except (NotFound, PreconditionFailed, StorageFull) as error:  # before anything was changed
        return error
