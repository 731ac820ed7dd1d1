"""The part of the index that counts the storage usage of each account and has its limit.

Triggers update the count in the transaction that writes or deletes the row of an object or a part, so it is always
exact, whichever process writes, and reading it takes constant time.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from trainyard.foundation.locations import BucketRef
from trainyard.objects.contract import BucketUse, StorageFull
from trainyard.objects.database import Database

# Has the default limit of accounts without their own.
EVERYONE: Final = "*"
# Added to the bytes of each object or part, for its file and its row in the index.
OVERHEAD_BYTES: Final = 4096

# These tables were added later; an existing index is counted once.
USAGE_SCHEMA: Final = f"""
CREATE TABLE usage (account TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE storage_limit (account TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS upload_by_id ON upload (id);
INSERT INTO usage (account, bytes)
    SELECT account, sum(bytes) FROM (
        SELECT bucket, size + {OVERHEAD_BYTES} AS bytes FROM object UNION ALL
        SELECT bucket, size + {OVERHEAD_BYTES} AS bytes FROM part JOIN upload ON upload.id = part.upload
    ) JOIN bucket ON bucket.id = bucket GROUP BY account;

CREATE TRIGGER object_added_to_usage AFTER INSERT ON object BEGIN
    INSERT INTO usage (account, bytes)
        SELECT account, new.size + {OVERHEAD_BYTES} FROM bucket WHERE id = new.bucket
        ON CONFLICT (account) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER object_changed_in_usage AFTER UPDATE OF size ON object BEGIN
    UPDATE usage SET bytes = bytes + new.size - old.size
        WHERE account = (SELECT account FROM bucket WHERE id = new.bucket);
END;
CREATE TRIGGER object_taken_from_usage AFTER DELETE ON object BEGIN
    UPDATE usage SET bytes = bytes - old.size - {OVERHEAD_BYTES}
        WHERE account = (SELECT account FROM bucket WHERE id = old.bucket);
END;
CREATE TRIGGER part_added_to_usage AFTER INSERT ON part BEGIN
    INSERT INTO usage (account, bytes)
        SELECT account, new.size + {OVERHEAD_BYTES} FROM upload JOIN bucket ON bucket.id = upload.bucket
        WHERE upload.id = new.upload
        ON CONFLICT (account) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER part_changed_in_usage AFTER UPDATE OF size ON part BEGIN
    UPDATE usage SET bytes = bytes + new.size - old.size WHERE account =
        (SELECT account FROM upload JOIN bucket ON bucket.id = upload.bucket WHERE upload.id = new.upload);
END;
-- Parts go after their upload, and uploads after their bucket. So each takes what lies below it away before it goes.
CREATE TRIGGER upload_taken_from_usage BEFORE DELETE ON upload BEGIN
    UPDATE usage SET bytes = bytes -
        (SELECT coalesce(sum(size + {OVERHEAD_BYTES}), 0) FROM part WHERE upload = old.id)
        WHERE account = (SELECT account FROM bucket WHERE id = old.bucket);
END;
CREATE TRIGGER bucket_taken_from_usage BEFORE DELETE ON bucket BEGIN
    UPDATE usage SET bytes = bytes -
        (SELECT coalesce(sum(size + {OVERHEAD_BYTES}), 0) FROM part JOIN upload ON upload.id = part.upload
            WHERE upload.bucket = old.id)
        WHERE account = old.account;
END;
"""

_USAGE_AND_LIMIT = """
SELECT coalesce((SELECT bytes FROM usage WHERE account = ?1), 0),
    coalesce(
        (SELECT bytes FROM storage_limit WHERE account = ?1), (SELECT bytes FROM storage_limit WHERE account = '*')
    )
"""


_BUCKET_USES = """
SELECT json_group_array(json_array(account, name, objects, bytes)) FROM (
    SELECT account, name, count(object.key) AS objects, coalesce(sum(object.size), 0) AS bytes
    FROM bucket LEFT JOIN object ON object.bucket = bucket.id
    WHERE ?1 IS NULL OR account = ?1
    GROUP BY bucket.id ORDER BY account, name
)
"""


class UsageIndex:
    """The storage usage and limits of accounts, in bytes. Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def usage(self) -> Mapping[str, int]:
        return self._pairs("usage")

    def bucket_uses(self, account: str | None) -> Sequence[BucketUse]:
        """Count the objects of each bucket; no trigger keeps these counts."""

        def read(owner: str, name: str, count: int, size: int) -> BucketUse:
            return BucketUse(BucketRef(owner, name), count, size + count * OVERHEAD_BYTES)

        return self._database.rows(_BUCKET_USES, (account,), read=read)

    def limits(self) -> Mapping[str, int]:
        """Return limits by account; that of `EVERYONE` is the default."""
        return self._pairs("storage_limit")

    def set_limit(self, account: str, limit_bytes: int | None) -> None:
        """Set a limit, or remove it with None."""

        def work(connection: sqlite3.Connection) -> None:
            if limit_bytes is None:
                connection.execute("DELETE FROM storage_limit WHERE account = ?", (account,))
            else:
                connection.execute("INSERT OR REPLACE INTO storage_limit VALUES (?, ?)", (account, limit_bytes))

        self._database.write(work)

    def require_space(self, account: str, size: int, *, replaced: int = 0) -> None:
        """Raise StorageFull if `size` bytes in place of `replaced` bytes exceed the account's limit."""
        with self._database.reading() as connection:
            check_limit(connection, account, size, replaced=replaced)

    def _pairs(self, table: str) -> Mapping[str, int]:
        rows = self._database.rows(
            f"SELECT json_group_array(json_array(account, bytes)) FROM {table}", (), read=lambda *row: row
        )
        return dict(rows)


def check_limit(connection: sqlite3.Connection, account: str, size: int, *, replaced: int) -> None:
    """Raise StorageFull if the account would exceed its limit. A write that shrinks usage is never refused."""
    used, limit = connection.execute(_USAGE_AND_LIMIT, (account,)).fetchone()
    added = size - replaced
    if limit is not None and added > 0 and used + added > limit:
        raise StorageFull(
            f"The account {account} uses {used} of {limit} bytes in this yard; {added} more exceed the limit. "
            "Delete what is not needed, or ask an administrator to raise the limit with `trainyard quota storage`."
        )
