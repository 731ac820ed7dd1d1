"""The tables of the keyring, and the rows of keys and aliases."""

import json
import sqlite3
from datetime import datetime
from typing import Final

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import NotFound
from trainyard.objects.encryption.keys import KEY_KIND, EncryptionKey, KeyAlias, KeyManager, KeyState

VERSION: Final = 1
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS master_key (fingerprint TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS key (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    region TEXT NOT NULL,
    state TEXT NOT NULL,
    manager TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    deletion_at INTEGER,
    description TEXT NOT NULL,
    tags TEXT NOT NULL,
    material TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS key_by_account ON key (account, id);
CREATE UNIQUE INDEX IF NOT EXISTS store_key_by_account ON key (account) WHERE manager = 'STORE';
CREATE INDEX IF NOT EXISTS key_by_deletion ON key (deletion_at) WHERE deletion_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS alias (
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    region TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (account, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS alias_by_key ON alias (key);
"""

KEY_COLUMNS: Final = "id, account, region, state, manager, created_at, deletion_at, description, tags"
ALIAS_COLUMNS: Final = "account, name, key, region, created_at, changed_at"


def insert_key(connection: sqlite3.Connection, key: EncryptionKey, *, material: str) -> None:
    connection.execute(
        f"INSERT INTO key ({KEY_COLUMNS}, material) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(key.id, key.account, key.region, key.state, key.manager, to_micros(key.created_at)),
            *(_micros(key.deletion_at), key.description, json.dumps(dict(key.tags)), material),
        ),
    )


def update_key(connection: sqlite3.Connection, key: EncryptionKey) -> None:
    changed = (key.state, _micros(key.deletion_at), key.description, json.dumps(dict(key.tags)))
    connection.execute(
        "UPDATE key SET state = ?, deletion_at = ?, description = ?, tags = ? WHERE id = ?", (*changed, key.id)
    )


def insert_alias(connection: sqlite3.Connection, alias: KeyAlias) -> bool:
    """Insert an alias; return False if the account has it."""
    created, changed = to_micros(alias.created_at), to_micros(alias.changed_at)
    added = connection.execute(
        f"INSERT INTO alias ({ALIAS_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (alias.account, alias.name, alias.key_id, alias.region, created, changed),
    )
    return added.rowcount > 0


def require_key(connection: sqlite3.Connection, account: str, key_id: str) -> None:
    if not connection.execute("SELECT 1 FROM key WHERE id = ? AND account = ?", (key_id, account)).fetchone():
        raise NotFound(KEY_KIND, key_id)


def read_key(
    key_id: str,
    account: str,
    region: str,
    state: str,
    manager: str,
    created_at: int,
    deletion_at: int | None,
    description: str,
    tags: str,
) -> EncryptionKey:
    return EncryptionKey(
        *(key_id, account, region, KeyState(state), KeyManager(manager), from_micros(created_at)),
        None if deletion_at is None else from_micros(deletion_at),
        description,
        json.loads(tags),
    )


def read_alias(account: str, name: str, key: str, region: str, created_at: int, changed_at: int) -> KeyAlias:
    return KeyAlias(account, name, key, region, from_micros(created_at), from_micros(changed_at))


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)
