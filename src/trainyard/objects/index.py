"""The index: which keys exist, what is known of them, and which data file holds each.

Lists leave SQLite as one JSON text instead of row by row: the `sqlite3` module gives up the interpreter lock at every
row and waits for its turn again, which beside two busy threads made a page of 1,000 keys cost 500 ms instead of 1.4.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import AlreadyExists, Conflict, NotFound, TrainyardError
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import (
    Bucket,
    ChecksumAlgorithm,
    ChecksumType,
    Listing,
    ObjectInfo,
    ObjectSummary,
    Precondition,
    PreconditionFailed,
    Upload,
    UploadPage,
)
from trainyard.objects.database import Database, Parameters
from trainyard.objects.listing import beyond, common_prefix, first_key, roll_up, upload_page
from trainyard.objects.preconditions import check_precondition
from trainyard.objects.rows import (
    StoredObject,
    StoredPart,
    attributes_text,
    checksum_text,
    part_row,
    parts_text,
    read_attributes,
    read_bucket,
    read_checksum,
    read_part,
    read_parts,
    tags_text,
)

T = TypeVar("T")

_VERSION = 1
_AT_ONCE = 1000  # keys in one statement; SQLite takes 32,766

# The triggers see to it that no row stops naming a data file without the file going to the trash in the same
# transaction. AUTOINCREMENT never gives an id twice, also not after the row with the highest is gone.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS bucket (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    region TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    tags TEXT NOT NULL,
    UNIQUE (account, name)
);
CREATE TABLE IF NOT EXISTS object (
    bucket INTEGER NOT NULL,
    key BLOB NOT NULL,
    data TEXT NOT NULL,
    size INTEGER NOT NULL,
    etag TEXT NOT NULL,
    modified_at INTEGER NOT NULL,
    checksum TEXT,
    attributes TEXT,
    parts TEXT,
    PRIMARY KEY (bucket, key)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS object_by_data ON object (data);
CREATE TABLE IF NOT EXISTS upload (
    bucket INTEGER NOT NULL,
    key BLOB NOT NULL,
    id TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    attributes TEXT,
    algorithm TEXT,
    checksum_type TEXT,
    PRIMARY KEY (bucket, key, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS part (
    upload TEXT NOT NULL,
    number INTEGER NOT NULL,
    data TEXT NOT NULL,
    size INTEGER NOT NULL,
    etag TEXT NOT NULL,
    modified_at INTEGER NOT NULL,
    checksum TEXT,
    PRIMARY KEY (upload, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS part_by_data ON part (data);
CREATE TABLE IF NOT EXISTS trash (sequence INTEGER PRIMARY KEY AUTOINCREMENT, data TEXT NOT NULL);

CREATE TRIGGER IF NOT EXISTS object_replaced AFTER UPDATE OF data ON object WHEN old.data <> new.data
    BEGIN INSERT INTO trash (data) VALUES (old.data); END;
CREATE TRIGGER IF NOT EXISTS object_deleted AFTER DELETE ON object
    BEGIN INSERT INTO trash (data) VALUES (old.data); END;
CREATE TRIGGER IF NOT EXISTS part_replaced AFTER UPDATE OF data ON part WHEN old.data <> new.data
    BEGIN INSERT INTO trash (data) VALUES (old.data); END;
CREATE TRIGGER IF NOT EXISTS part_deleted AFTER DELETE ON part
    BEGIN INSERT INTO trash (data) VALUES (old.data); END;
CREATE TRIGGER IF NOT EXISTS upload_deleted AFTER DELETE ON upload
    BEGIN DELETE FROM part WHERE upload = old.id; END;
CREATE TRIGGER IF NOT EXISTS bucket_deleted AFTER DELETE ON bucket
    BEGIN DELETE FROM upload WHERE bucket = old.id; END;
"""

_OBJECT = """
SELECT o.data, o.size, o.etag, o.modified_at, o.checksum, o.attributes, o.parts
FROM bucket b LEFT JOIN object o ON o.bucket = b.id AND o.key = ? WHERE b.account = ? AND b.name = ?
"""

_DATA_FILES = """
SELECT json_group_array(json_array(o.data, o.size, o.etag))
FROM json_each(?) wanted LEFT JOIN object o ON o.key = CAST(wanted.value AS BLOB)
    AND o.bucket = (SELECT id FROM bucket WHERE account = ? AND name = ?)
"""

_PUT_OBJECT = """
INSERT INTO object (bucket, key, data, size, etag, modified_at, checksum, attributes, parts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (bucket, key) DO UPDATE SET data = excluded.data, size = excluded.size, etag = excluded.etag,
    modified_at = excluded.modified_at, checksum = excluded.checksum, attributes = excluded.attributes,
    parts = excluded.parts
"""

_PUT_PART = """
INSERT INTO part (upload, number, size, etag, modified_at, checksum, data) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (upload, number) DO UPDATE SET size = excluded.size, etag = excluded.etag,
    modified_at = excluded.modified_at, checksum = excluded.checksum, data = excluded.data
"""

# Few objects have a storage class, and to look for the word costs far less than to parse the JSON of each.
_STORAGE_CLASS = """
CASE WHEN instr(attributes, 'x-amz-storage-class') THEN json_extract(attributes, '$[0]."x-amz-storage-class"') END
"""
_SUMMARIES = f"SELECT json_group_array(json_array(hex(key), size, etag, modified_at, checksum, {_STORAGE_CLASS})) FROM "

_PAGE = f"""
{_SUMMARIES} (
    SELECT * FROM object WHERE bucket = :bucket AND key >= :start AND key < :end ORDER BY key LIMIT :limit
)
"""

# Steps from key to key and leaps over the rest of each common prefix, so a page costs one seek for each of its lines.
# `||` makes text of its bytes, hence the casts.
_ROLLED_PAGE = f"""
WITH RECURSIVE step (key) AS (
    SELECT * FROM (
        SELECT key FROM object WHERE bucket = :bucket AND key >= :start AND key < :end ORDER BY key LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT key FROM object WHERE bucket = :bucket AND key < :end AND key >= CASE
            WHEN instr(substr(step.key, :skip + 1), :delimiter) = 0 THEN CAST(step.key || x'00' AS BLOB)
            ELSE CAST(
                substr(step.key, 1, :skip + instr(substr(step.key, :skip + 1), :delimiter) - 1) || :beyond AS BLOB
            )
        END ORDER BY key LIMIT 1
    ) FROM step WHERE step.key IS NOT NULL LIMIT :limit
)
{_SUMMARIES} (
    SELECT object.* FROM step CROSS JOIN object ON object.bucket = :bucket AND object.key = step.key
)
"""

_UPLOAD = "id, started_at, attributes, algorithm, checksum_type"


@dataclass(frozen=True, slots=True)
class Trash:
    """A data file that nothing names any more."""

    sequence: int
    data: str


class PartsMoved(TrainyardError):
    """A part was replaced while its upload was being completed."""


class Index:
    """The rows behind `FilesystemObjects`. Each method is one transaction, durable when it returns."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, schema=_SCHEMA, version=_VERSION)

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
            bucket = _bucket_id(connection, ref)
            if connection.execute("SELECT 1 FROM object WHERE bucket = ? LIMIT 1", (bucket,)).fetchone():
                raise Conflict("bucket", ref.name, "still holds objects; delete them first")
            connection.execute("DELETE FROM bucket WHERE id = ?", (bucket,))

        self._database.write(work)

    def bucket_id(self, ref: BucketRef) -> int:
        with self._database.reading() as connection:
            return _bucket_id(connection, ref)

    def bucket(self, ref: BucketRef) -> Bucket:
        found = self.buckets(account=ref.account, name=ref.name)
        if not found:
            raise NotFound("bucket", ref.name)
        return found[0]

    def buckets(self, *, account: str | None, name: str | None) -> Sequence[Bucket]:
        return self._list(
            "SELECT json_group_array(json_array(account, name, region, created_at, tags)) FROM (SELECT * FROM bucket "
            "WHERE (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR name = ?2) ORDER BY name, account)",
            (account, name),
            read=read_bucket,
        )

    def tag_bucket(self, ref: BucketRef, tags: Mapping[str, str]) -> None:
        text = tags_text(tags)

        def work(connection: sqlite3.Connection) -> None:
            bucket = _bucket_id(connection, ref)
            connection.execute("UPDATE bucket SET tags = ? WHERE id = ?", (text, bucket))

        self._database.write(work)

    def object(self, where: Location) -> StoredObject:
        bucket = where.bucket
        parameters = (where.key.encode(), bucket.account, bucket.name)
        stored = self._database.row(_OBJECT, parameters, read=partial(_stored_object, where))
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

        return self._database.write(partial(_put_object, bucket=bucket, stored=stored, precondition=precondition))

    def put_objects(self, objects: Sequence[tuple[StoredObject, Precondition]]) -> Sequence[bool | TrainyardError]:
        """Of each: whether another data file was replaced, or why it was not put."""

        def work(connection: sqlite3.Connection) -> list[bool | TrainyardError]:
            return [_put_or_why_not(connection, stored, precondition) for stored, precondition in objects]

        return self._database.write(work)

    def delete_object(self, where: Location, precondition: Precondition) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            bucket = _bucket_id(connection, where.bucket)
            _check_target(connection, bucket, where, precondition=precondition)
            deleted = connection.execute(
                "DELETE FROM object WHERE bucket = ? AND key = ?", (bucket, where.key.encode())
            )
            return deleted.rowcount > 0

        return self._database.write(work)

    def delete_objects(self, ref: BucketRef, keys: Sequence[str]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            bucket = _bucket_id(connection, ref)
            for first in range(0, len(keys), _AT_ONCE):
                some = [key.encode() for key in keys[first : first + _AT_ONCE]]
                marks = ", ".join("?" * len(some))
                connection.execute(f"DELETE FROM object WHERE bucket = ? AND key IN ({marks})", (bucket, *some))

        self._database.write(work)

    def tag_object(self, where: Location, tags: Mapping[str, str]) -> None:
        place = where.key.encode()

        def work(connection: sqlite3.Connection) -> None:
            bucket = _bucket_id(connection, where.bucket)
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
        before, cut = prefix.encode(), delimiter.encode()
        parameters: dict[str, object] = {
            "bucket": self.bucket_id(ref),
            "start": first_key(before, cut, after=after.encode()),
            "end": beyond(before),
            "limit": limit + 1,
        }
        if not cut:
            return _flat_page(self._list(_PAGE, parameters, read=_summary), limit)
        parameters |= {"skip": len(before), "delimiter": cut, "beyond": beyond(cut)}
        found = self._list(_ROLLED_PAGE, parameters, read=_summary)
        return _rolled_page(found, limit, prefix=before, delimiter=cut)

    def add_upload(self, upload: Upload) -> None:
        where = upload.where

        def work(connection: sqlite3.Connection) -> None:
            bucket = _bucket_id(connection, where.bucket)
            connection.execute(
                f"INSERT INTO upload (bucket, key, {_UPLOAD}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    bucket,
                    where.key.encode(),
                    upload.id,
                    to_micros(upload.started_at),
                    attributes_text(upload.attributes),
                    upload.algorithm,
                    upload.checksum_type,
                ),
            )

        self._database.write(work)

    def upload(self, where: Location, upload_id: str) -> Upload:
        with self._database.reading() as connection:
            return _upload(connection, where, upload_id)

    def uploads(
        self, ref: BucketRef, *, prefix: str, delimiter: str, after_key: str, after_upload_id: str, limit: int
    ) -> UploadPage:
        before, cut, marker = prefix.encode(), delimiter.encode(), after_key.encode()
        start = first_key(before, cut, after=marker)
        if after_upload_id and start == marker + b"\0":
            start = marker  # the rest of the uploads of that key come first
        with self._database.reading() as connection:
            bucket = _bucket_id(connection, ref)

            def seek(key: bytes) -> Iterator[tuple[bytes, Upload]]:
                beginning = (key, after_upload_id if key == marker else "")
                return _uploads_from(connection, bucket, ref, beginning=beginning)

            return upload_page(roll_up(seek, prefix=before, delimiter=cut, start=start), limit)

    def put_part(self, where: Location, upload_id: str, *, stored: StoredPart) -> bool:
        """Whether another data file was replaced."""

        def work(connection: sqlite3.Connection) -> bool:
            _upload(connection, where, upload_id)
            place = (upload_id, stored.part.number)
            replaced = connection.execute("SELECT 1 FROM part WHERE upload = ? AND number = ?", place).fetchone()
            connection.execute(_PUT_PART, (upload_id, *part_row(stored.part), stored.data))
            return replaced is not None

        return self._database.write(work)

    def parts(self, where: Location, upload_id: str, *, after: int, limit: int) -> Sequence[StoredPart]:
        found = self._list(
            "SELECT json_group_array(json_array(data, number, size, etag, modified_at, checksum)) FROM "
            "(SELECT * FROM part WHERE upload = ? AND number > ? ORDER BY number LIMIT ?)",
            (upload_id, after, limit),
            read=_stored_part,
        )
        self.upload(where, upload_id)  # looked for last: if it is there now, its parts were there before
        return found

    def complete_upload(
        self, upload: Upload, stored: StoredObject, *, parts: Sequence[StoredPart], precondition: Precondition
    ) -> None:
        """Put the object in the place of the upload; PartsMoved when one of `parts` is no longer the newest."""

        def work(connection: sqlite3.Connection) -> None:
            where = upload.where
            _upload(connection, where, upload.id)
            _check_parts(connection, upload.id, parts)
            bucket = _bucket_id(connection, where.bucket)
            _put_object(connection, bucket=bucket, stored=stored, precondition=precondition)
            _delete_upload(connection, bucket, upload)

        self._database.write(work)

    def delete_upload(self, where: Location, upload_id: str) -> None:
        def work(connection: sqlite3.Connection) -> None:
            upload = _upload(connection, where, upload_id)
            _delete_upload(connection, _bucket_id(connection, where.bucket), upload)

        self._database.write(work)

    def trash(self, *, after: int, limit: int = 1000) -> Sequence[Trash]:
        return self._list(
            "SELECT json_group_array(json_array(sequence, data)) FROM "
            "(SELECT * FROM trash WHERE sequence > ? ORDER BY sequence LIMIT ?)",
            (after, limit),
            read=Trash,
        )

    def forget_trash(self, last: int) -> None:
        """Forget it with the next commit; after a crash before that, the files are merely removed once more."""
        self._database.write_later(lambda writer: writer.execute("DELETE FROM trash WHERE sequence <= ?", (last,)))

    def names(self, data: str) -> bool:
        """Whether an object or a part lies in this data file."""
        query = "SELECT EXISTS (SELECT 1 FROM object WHERE data = ?1) OR EXISTS (SELECT 1 FROM part WHERE data = ?1)"
        return self._database.row(query, (data,), read=bool) is True

    def discards(self, data: str) -> bool:
        """Whether this data file waits for its removal."""
        return self._database.row("SELECT EXISTS (SELECT 1 FROM trash WHERE data = ?)", (data,), read=bool) is True

    def damage(self) -> Sequence[str]:
        """What SQLite finds wrong with its file."""
        with self._database.reading() as connection:
            found = [text for (text,) in connection.execute("PRAGMA integrity_check")]
        return [] if found == ["ok"] else found

    def all_objects(self) -> Iterator[StoredObject]:
        columns = "account, name, key, data, size, etag, modified_at, checksum, attributes, parts"
        with self._database.reading() as connection:
            for account, name, key, *row in connection.execute(
                f"SELECT {columns} FROM object JOIN bucket ON bucket.id = bucket ORDER BY bucket, key"
            ):
                yield _stored_object(Location(BucketRef(account, name), key.decode()), *row)

    def all_data(self) -> Iterator[str]:
        """Every data file that is named."""
        with self._database.reading() as connection:
            for (data,) in connection.execute("SELECT data FROM object UNION ALL SELECT data FROM part"):
                yield data

    def all_parts(self) -> Iterator[StoredPart]:
        with self._database.reading() as connection:
            for row in connection.execute("SELECT data, number, size, etag, modified_at, checksum FROM part"):
                yield _stored_part(*row)

    def _list(self, statement: str, parameters: Parameters, *, read: Callable[..., T]) -> list[T]:
        text = self._database.row(statement, parameters, read=str)
        assert text is not None, "an aggregate always has one row"
        return [read(*row) for row in json.loads(text)]


def _bucket_id(connection: sqlite3.Connection, ref: BucketRef) -> int:
    row = connection.execute("SELECT id FROM bucket WHERE account = ? AND name = ?", (ref.account, ref.name)).fetchone()
    if row is None:
        raise NotFound("bucket", ref.name)
    found: int = row[0]
    return found


def _put_object(
    connection: sqlite3.Connection, *, bucket: int, stored: StoredObject, precondition: Precondition
) -> bool:
    info = stored.info
    replaces = _check_target(connection, bucket, info.where, precondition=precondition)
    values = (info.size, info.etag, to_micros(info.modified_at), checksum_text(info.checksum))
    described = (attributes_text(info.attributes), parts_text(info.parts))
    connection.execute(_PUT_OBJECT, (bucket, info.where.key.encode(), stored.data, *values, *described))
    return replaces


def _put_or_why_not(
    connection: sqlite3.Connection, stored: StoredObject, precondition: Precondition
) -> bool | TrainyardError:
    try:
        bucket = _bucket_id(connection, stored.info.where.bucket)
        return _put_object(connection, bucket=bucket, stored=stored, precondition=precondition)
    except (NotFound, PreconditionFailed) as error:  # before anything was changed
        return error


def _check_target(connection: sqlite3.Connection, bucket: int, where: Location, *, precondition: Precondition) -> bool:
    """Whether there is an object already; raises when the bucket is gone or the precondition does not hold."""
    row = connection.execute(
        "SELECT o.etag FROM bucket b LEFT JOIN object o ON o.bucket = b.id AND o.key = ? WHERE b.id = ?",
        (where.key.encode(), bucket),
    ).fetchone()
    if row is None:
        raise NotFound("bucket", where.bucket.name)
    etag: str | None = row[0]
    check_precondition(precondition, where, etag=etag)
    return etag is not None


def _stored_object(
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


def _stored_part(data: str, number: int, size: int, etag: str, modified_at: int, checksum: str | None) -> StoredPart:
    return StoredPart(data, read_part(number, size, etag, modified_at, checksum))


def _summary(
    key: str, size: int, etag: str, modified_at: int, checksum: str | None, storage_class: str | None
) -> ObjectSummary:
    name, modified = bytes.fromhex(key).decode(), from_micros(modified_at)
    return ObjectSummary(name, size, etag, modified, read_checksum(checksum), storage_class)


def _flat_page(found: Sequence[ObjectSummary], limit: int) -> Listing:
    more = 0 < limit < len(found)
    return Listing(found[:limit], [], found[limit - 1].key if more else None)


def _rolled_page(found: Sequence[ObjectSummary], limit: int, *, prefix: bytes, delimiter: bytes) -> Listing:
    objects, prefixes, last = [], [], ""
    for summary in found[:limit]:
        shared = common_prefix(summary.key.encode(), prefix, delimiter)
        if shared is None:
            last = summary.key
            objects.append(summary)
        else:
            last = shared.decode()
            prefixes.append(last)
    return Listing(objects, prefixes, last if 0 < limit < len(found) else None)


def _upload(connection: sqlite3.Connection, where: Location, upload_id: str) -> Upload:
    bucket = _bucket_id(connection, where.bucket)
    row = connection.execute(
        f"SELECT {_UPLOAD} FROM upload WHERE bucket = ? AND key = ? AND id = ?", (bucket, where.key.encode(), upload_id)
    ).fetchone()
    if row is None:
        raise NotFound("upload", upload_id)
    return _read_upload(where, *row)


def _read_upload(
    where: Location,
    upload_id: str,
    started_at: int,
    attributes: str | None,
    algorithm: str | None,
    checksum_type: str | None,
) -> Upload:
    return Upload(
        upload_id,
        where,
        from_micros(started_at),
        read_attributes(attributes),
        ChecksumAlgorithm(algorithm) if algorithm else None,
        ChecksumType(checksum_type) if checksum_type else None,
    )


def _uploads_from(
    connection: sqlite3.Connection, bucket: int, ref: BucketRef, *, beginning: tuple[bytes, str]
) -> Iterator[tuple[bytes, Upload]]:
    rows = connection.execute(
        f"SELECT key, {_UPLOAD} FROM upload WHERE bucket = ? AND (key, id) > (?, ?) ORDER BY key, id",
        (bucket, *beginning),
    )
    for key, *row in rows:
        yield key, _read_upload(Location(ref, key.decode()), *row)


def _check_parts(connection: sqlite3.Connection, upload_id: str, parts: Sequence[StoredPart]) -> None:
    (text,) = connection.execute("SELECT json_group_array(data) FROM part WHERE upload = ?", (upload_id,)).fetchone()
    if not {part.data for part in parts} <= set(json.loads(text)):
        raise PartsMoved(f'A part of upload "{upload_id}" was replaced while the upload was being completed.')


def _delete_upload(connection: sqlite3.Connection, bucket: int, upload: Upload) -> None:
    connection.execute(
        "DELETE FROM upload WHERE bucket = ? AND key = ? AND id = ?", (bucket, upload.where.key.encode(), upload.id)
    )
