"""The tables of the index."""

from typing import Final

VERSION: Final = 2
# The version of an index without encrypted objects. Older releases, which would return them as they are, read no other.
PLAIN_VERSION: Final = 1

# The triggers put a data file into the trash in the same transaction that removes its reference.
# AUTOINCREMENT never reuses an id, even if the row with the highest id is deleted.
SCHEMA: Final = """
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

# How the objects of a bucket are encrypted that ask for no encryption: the headers as JSON. Added later.
BUCKET_ENCRYPTION_SCHEMA: Final = """
CREATE TABLE bucket_encryption (bucket INTEGER PRIMARY KEY, headers TEXT NOT NULL);
CREATE TRIGGER bucket_encryption_deleted AFTER DELETE ON bucket
    BEGIN DELETE FROM bucket_encryption WHERE bucket = old.id; END;
"""
