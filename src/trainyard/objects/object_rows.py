"""The rows of objects, within the caller's transaction."""

import sqlite3

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import ObjectInfo, Precondition
from trainyard.objects.index_usage import OVERHEAD_BYTES, check_limit
from trainyard.objects.preconditions import check_precondition
from trainyard.objects.rows import (
    StoredObject,
    attributes_text,
    checksum_text,
    parts_text,
    read_attributes,
    read_checksum,
    read_parts,
)

_PUT_OBJECT = """
INSERT INTO object (bucket, key, data, size, etag, modified_at, checksum, attributes, parts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (bucket, key) DO UPDATE SET data = excluded.data, size = excluded.size, etag = excluded.etag,
    modified_at = excluded.modified_at, checksum = excluded.checksum, attributes = excluded.attributes,
    parts = excluded.parts
"""


def find_bucket(connection: sqlite3.Connection, ref: BucketRef) -> int:
    row = connection.execute("SELECT id FROM bucket WHERE account = ? AND name = ?", (ref.account, ref.name)).fetchone()
    if row is None:
        raise NotFound("bucket", ref.name)
    found: int = row[0]
    return found


def put_object(
    connection: sqlite3.Connection,
    *,
    bucket: int,
    stored: StoredObject,
    precondition: Precondition,
    is_counted: bool = False,
) -> bool:
    """Put an object; return whether it replaced another data file. `is_counted`: its parts already count as usage."""
    info = stored.info
    replaces = check_target(connection, bucket, info.where, precondition=precondition)
    if not is_counted:
        replaced = _counted_bytes(connection, bucket, info.where) if replaces else 0
        check_limit(connection, info.where.bucket.account, info.size + OVERHEAD_BYTES, replaced=replaced)
    values = (info.size, info.etag, to_micros(info.modified_at), checksum_text(info.checksum))
    described = (attributes_text(info.attributes), parts_text(info.parts))
    connection.execute(_PUT_OBJECT, (bucket, info.where.key.encode(), stored.data, *values, *described))
    return replaces


def check_target(connection: sqlite3.Connection, bucket: int, where: Location, *, precondition: Precondition) -> bool:
    """Return whether the object exists; raise if the bucket is gone or the precondition does not hold."""
    row = connection.execute(
        "SELECT o.etag FROM bucket b LEFT JOIN object o ON o.bucket = b.id AND o.key = ? WHERE b.id = ?",
        (where.key.encode(), bucket),
    ).fetchone()
    if row is None:
        raise NotFound("bucket", where.bucket.name)
    etag: str | None = row[0]
    check_precondition(precondition, where, etag=etag)
    return etag is not None


def _counted_bytes(connection: sqlite3.Connection, bucket: int, where: Location) -> int:
    """Return the bytes that an object counts as usage."""
    row = connection.execute("SELECT size FROM object WHERE bucket = ? AND key = ?", (bucket, where.key.encode()))
    size: int = row.fetchone()[0]
    return size + OVERHEAD_BYTES


def read_object(
    where: Location,
    data: str | None,
    size: int,
    etag: str,
    modified_at: int,
    checksum: str | None,
    attributes: str | None,
    parts: str | None,
) -> StoredObject:
    if data is None:
        raise NotFound("key", where.key)
    described = (read_attributes(attributes), read_checksum(checksum), read_parts(parts))
    return StoredObject(data, ObjectInfo(where, size, etag, from_micros(modified_at), *described))
