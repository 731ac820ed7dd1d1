"""The part of the index about data files: what refers to them, and which are trash."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.database import Database
from trainyard.objects.object_rows import read_object
from trainyard.objects.rows import StoredObject, StoredPart, read_stored_part


@dataclass(frozen=True, slots=True)
class Trash:
    """A data file without references."""

    sequence: int
    data: str


class DataIndex:
    """The data files of all objects and parts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def trash(self, *, after: int, limit: int = 1000) -> Sequence[Trash]:
        return self._database.rows(
            "SELECT json_group_array(json_array(sequence, data)) FROM "
            "(SELECT * FROM trash WHERE sequence > ? ORDER BY sequence LIMIT ?)",
            (after, limit),
            read=Trash,
        )

    def forget_trash(self, last: int) -> None:
        """Delete the entries with the next commit; after a crash before it, the files are just removed again."""
        self._database.write_later(lambda writer: writer.execute("DELETE FROM trash WHERE sequence <= ?", (last,)))

    def has_reference(self, data: str) -> bool:
        """Whether an object or a part refers to this data file."""
        query = "SELECT EXISTS (SELECT 1 FROM object WHERE data = ?1) OR EXISTS (SELECT 1 FROM part WHERE data = ?1)"
        return self._database.row(query, (data,), read=bool) is True

    def is_trash(self, data: str) -> bool:
        """Whether this data file is in the trash."""
        return self._database.row("SELECT EXISTS (SELECT 1 FROM trash WHERE data = ?)", (data,), read=bool) is True

    def find_damage(self) -> Sequence[str]:
        """Return what SQLite's integrity check finds wrong with its file."""
        with self._database.reading() as connection:
            found = [text for (text,) in connection.execute("PRAGMA integrity_check")]
        return [] if found == ["ok"] else found

    def all_objects(self) -> Iterator[StoredObject]:
        columns = "account, name, key, data, size, etag, modified_at, checksum, attributes, parts"
        with self._database.reading() as connection:
            for account, name, key, *row in connection.execute(
                f"SELECT {columns} FROM object JOIN bucket ON bucket.id = bucket ORDER BY bucket, key"
            ):
                yield read_object(Location(BucketRef(account, name), key.decode()), *row)

    def all_data(self) -> Iterator[str]:
        """Yield every data file that has a reference."""
        with self._database.reading() as connection:
            for (data,) in connection.execute("SELECT data FROM object UNION ALL SELECT data FROM part"):
                yield data

    def all_parts(self) -> Iterator[StoredPart]:
        with self._database.reading() as connection:
            for row in connection.execute("SELECT data, number, size, etag, modified_at, checksum FROM part"):
                yield read_stored_part(*row)
