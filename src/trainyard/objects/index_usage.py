"""The part of the index that counts what each account keeps, and knows how much it may.

Triggers move the count in the transaction that writes or deletes the row of an object or a part, so it cannot differ
from what is there, whichever process writes, and no look at it grows with what is stored.
"""

import sqlite3
from collections.abc import Mapping
from typing import Final

from trainyard.objects.contract import StorageFull
from trainyard.objects.database import Database

EVERYONE: Final = "*"  # the account whose limit is that of all without one of their own
OVERHEAD_BYTES: Final = 4096  # that an object or part counts besides its bytes: a file, and its row in the index

# It came after the other tables, and an index of before is counted once.
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

_ALLOWED = """
SELECT coalesce((SELECT bytes FROM usage WHERE account = ?1), 0),
    coalesce(
        (SELECT bytes FROM storage_limit WHERE account = ?1), (SELECT bytes FROM storage_limit WHERE account = '*')
    )
"""


class UsageIndex:
    """What accounts keep, and may keep, in bytes. Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def usage(self) -> Mapping[str, int]:
        return self._pairs("usage")

    def limits(self) -> Mapping[str, int]:
        """By account; that of `EVERYONE` holds for each account that has none of its own."""
        return self._pairs("storage_limit")

    def set_limit(self, account: str, limit_bytes: int | None) -> None:
        """None takes a limit away."""

        def work(connection: sqlite3.Connection) -> None:
            if limit_bytes is None:
                connection.execute("DELETE FROM storage_limit WHERE account = ?", (account,))
            else:
                connection.execute("INSERT OR REPLACE INTO storage_limit VALUES (?, ?)", (account, limit_bytes))

        self._database.write(work)

    def require_room(self, account: str, size: int, *, replaced: int = 0) -> None:
        """StorageFull when the account may not keep so much more in the place of so much that it keeps already."""
        with self._database.reading() as connection:
            check_limit(connection, account, size, replaced=replaced)

    def _pairs(self, table: str) -> Mapping[str, int]:
        rows = self._database.listed(
            f"SELECT json_group_array(json_array(account, bytes)) FROM {table}", (), read=lambda *row: row
        )
        return dict(rows)


def check_limit(connection: sqlite3.Connection, account: str, size: int, *, replaced: int) -> None:
    """StorageFull when it would be over its limit. What gets smaller is never refused."""
    used, limit = connection.execute(_ALLOWED, (account,)).fetchone()
    added = size - replaced
    if limit is not None and added > 0 and used + added > limit:
        raise StorageFull(
            f"The account {account} may keep {limit} bytes in this yard and keeps {used}; {added} more are too many. "
            "Delete what is not needed, or ask an administrator to raise the limit with `trainyard quota storage`."
        )
