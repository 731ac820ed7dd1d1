"""The part of the index that holds uploads and their parts."""

import json
import sqlite3
from collections.abc import Iterator, Sequence

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import ChecksumAlgorithm, ChecksumType, Precondition, Upload, UploadPage
from trainyard.objects.database import Database
from trainyard.objects.index_usage import OVERHEAD_BYTES, check_limit
from trainyard.objects.listing import first_key, roll_up, upload_page
from trainyard.objects.object_rows import find_bucket, put_object
from trainyard.objects.rows import (
    StoredObject,
    StoredPart,
    attributes_text,
    part_row,
    read_attributes,
    read_stored_part,
)

_UPLOAD = "id, started_at, attributes, algorithm, checksum_type"

_PUT_PART = """
INSERT INTO part (upload, number, size, etag, modified_at, checksum, data) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (upload, number) DO UPDATE SET size = excluded.size, etag = excluded.etag,
    modified_at = excluded.modified_at, checksum = excluded.checksum, data = excluded.data
"""


class PartsMoved(TrainyardError):
    """A part was replaced while its upload was being completed."""


class UploadIndex:
    """The rows of uploads. Each method is one transaction, durable when it returns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, upload: Upload) -> None:
        where = upload.where

        def work(connection: sqlite3.Connection) -> None:
            bucket = find_bucket(connection, where.bucket)
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

    def find(self, where: Location, upload_id: str) -> Upload:
        with self._database.reading() as connection:
            return _upload(connection, where, upload_id)

    def page(
        self, ref: BucketRef, *, prefix: str, delimiter: str, after_key: str, after_upload_id: str, limit: int
    ) -> UploadPage:
        before, cut, marker = prefix.encode(), delimiter.encode(), after_key.encode()
        start = first_key(before, cut, after=marker)
        if after_upload_id and start == marker + b"\0":
            # The remaining uploads of that key come first.
            start = marker
        with self._database.reading() as connection:
            bucket = find_bucket(connection, ref)

            def seek(key: bytes) -> Iterator[tuple[bytes, Upload]]:
                beginning = (key, after_upload_id if key == marker else "")
                return _uploads_from(connection, bucket, ref, beginning=beginning)

            return upload_page(roll_up(seek, prefix=before, delimiter=cut, start=start), limit)

    def put_part(self, where: Location, upload_id: str, *, stored: StoredPart) -> bool:
        """Put a part; return whether it replaced another data file."""

        def work(connection: sqlite3.Connection) -> bool:
            _upload(connection, where, upload_id)
            part_key = (upload_id, stored.part.number)
            replaced = connection.execute("SELECT size FROM part WHERE upload = ? AND number = ?", part_key).fetchone()
            replaced_bytes = 0 if replaced is None else replaced[0] + OVERHEAD_BYTES
            check_limit(connection, where.bucket.account, stored.part.size + OVERHEAD_BYTES, replaced=replaced_bytes)
            connection.execute(_PUT_PART, (upload_id, *part_row(stored.part), stored.data))
            return replaced is not None

        return self._database.write(work)

    def parts(self, where: Location, upload_id: str, *, after: int, limit: int) -> Sequence[StoredPart]:
        found = self._database.rows(
            "SELECT json_group_array(json_array(data, number, size, etag, modified_at, checksum)) FROM "
            "(SELECT * FROM part WHERE upload = ? AND number > ? ORDER BY number LIMIT ?)",
            (upload_id, after, limit),
            read=read_stored_part,
        )
        # Check the upload last: if it exists now, its parts existed before.
        self.find(where, upload_id)
        return found

    def complete(
        self, upload: Upload, stored: StoredObject, *, parts: Sequence[StoredPart], precondition: Precondition
    ) -> None:
        """Replace the upload by the object; PartsMoved if one of `parts` is no longer the newest."""

        def work(connection: sqlite3.Connection) -> None:
            where = upload.where
            _upload(connection, where, upload.id)
            _check_parts(connection, upload.id, parts)
            bucket = find_bucket(connection, where.bucket)
            put_object(connection, bucket=bucket, stored=stored, precondition=precondition, is_counted=True)
            _delete_upload(connection, bucket, upload)

        self._database.write(work)

    def delete(self, where: Location, upload_id: str) -> None:
        def work(connection: sqlite3.Connection) -> None:
            upload = _upload(connection, where, upload_id)
            _delete_upload(connection, find_bucket(connection, where.bucket), upload)

        self._database.write(work)


def _upload(connection: sqlite3.Connection, where: Location, upload_id: str) -> Upload:
    bucket = find_bucket(connection, where.bucket)
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
