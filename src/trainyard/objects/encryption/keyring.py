"""The encryption keys of all accounts, in one folder.

    keys.sqlite     the keys, encrypted with the master key, their states and aliases
    master.key      the master key, unless a setting names another file

The yard changes keys; it and the agents on its machine use them. A key is durable before anything is encrypted with it.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import AlreadyExists, Corrupt, NotFound, Unavailable
from trainyard.foundation.files import PRIVATE_FILE, make_folder
from trainyard.objects.database import Database
from trainyard.objects.encryption.cipher import KEY_BYTES, Cipher, WrongKey
from trainyard.objects.encryption.keyring_schema import (
    ALIAS_COLUMNS,
    KEY_COLUMNS,
    SCHEMA,
    VERSION,
    insert_alias,
    insert_key,
    read_alias,
    read_key,
    require_key,
    update_key,
)
from trainyard.objects.encryption.keys import (
    ALIAS_KIND,
    KEY_KIND,
    S3_ALIAS,
    EncryptionKey,
    KeyAlias,
    KeyDestroyed,
    KeyManager,
    KeyState,
    require_enabled,
)
from trainyard.objects.encryption.master_key import ensure_master_key, read_master_key

DATABASE: Final = "keys.sqlite"
MASTER_KEY: Final = "master.key"

_S3_DESCRIPTION: Final = "Default key that protects my S3 objects when no other key is defined"
_SELECT_KEY: Final = f"SELECT {KEY_COLUMNS} FROM key"
_SELECT_ALIAS: Final = f"SELECT {ALIAS_COLUMNS} FROM alias"

T = TypeVar("T")
Change = Callable[[EncryptionKey], EncryptionKey]


class Keyring:
    """Creates, finds, changes and uses keys. Nothing is opened or created before it is needed.

    All methods may be called from any thread. Keys of other accounts are not found. Raises NotFound with the kind
    KEY_KIND or ALIAS_KIND, KeyUnusable if a key cannot be used because of its state or no longer exists, Unavailable if
    the master key is missing and Corrupt if it is another one.
    """

    def __init__(self, folder: Path, *, master_key_file: Path | None = None) -> None:
        self.folder = folder
        self.master_key_file = master_key_file or folder / MASTER_KEY
        self._lock = Lock()
        self._opened: Database | None = None
        self._master: Cipher | None = None
        # Key material never changes, so it is decrypted once.
        self._ciphers: dict[str, Cipher] = {}
        # Whether the journal may still have keys that are destroyed.
        self._is_erasure_due = False

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    @property
    def exists(self) -> bool:
        """Whether a key was ever created."""
        return self._opened is not None or (self.folder / DATABASE).exists()

    def back_up(self, target: Path) -> None:
        """Copy one consistent state to a new file, without the master key."""
        self._database.back_up(target)

    def create(
        self,
        account: str,
        *,
        region: str,
        now: datetime,
        description: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> EncryptionKey:
        """Create a key of a user."""
        key = _new_key(account, KeyManager.CUSTOMER, region=region, now=now)
        key = replace(key, description=description, tags=tags or {})
        self._database.write(partial(insert_key, key=key, material=self._new_material(key)))
        return key

    def find(self, account: str, reference: str) -> EncryptionKey:
        """Return the key that an id, an ARN, an alias or the ARN of an alias names."""
        name = _local_name(account, reference)
        key_id = self.alias(account, name).key_id if name.startswith("alias/") else name
        query = f"{_SELECT_KEY} WHERE id = ? AND account = ? AND manager <> 'STORE'"
        found = self._rows(query, (key_id, account), read=read_key)
        if not found:
            raise NotFound(KEY_KIND, reference)
        return found[0]

    def find_usable(self, account: str, reference: str, *, region: str, now: datetime) -> EncryptionKey:
        """Return an enabled key. The key of `alias/aws/s3` is created on demand."""
        if _local_name(account, reference) == S3_ALIAS:
            return self.s3_key(account, region=region, now=now)
        return _require_enabled(self.find(account, reference))

    def keys(self, account: str, *, after: str = "", limit: int) -> Sequence[EncryptionKey]:
        """Return the keys of users and services, by id."""
        query = f"{_SELECT_KEY} WHERE account = ? AND id > ? AND manager <> 'STORE' ORDER BY id LIMIT ?"
        return self._rows(query, (account, after, limit), read=read_key)

    def change(self, account: str, reference: str, change: Change) -> EncryptionKey:
        """Apply a function to a key in one transaction. It may raise, and then nothing changes."""
        found = self.find(account, reference)

        def work(connection: sqlite3.Connection) -> EncryptionKey:
            row = connection.execute(f"{_SELECT_KEY} WHERE id = ?", (found.id,)).fetchone()
            if row is None:
                raise NotFound(KEY_KIND, reference)
            changed = change(read_key(*row))
            update_key(connection, changed)
            return changed

        return self._database.write(work)

    def alias(self, account: str, name: str) -> KeyAlias:
        found = self._rows(f"{_SELECT_ALIAS} WHERE account = ? AND name = ?", (account, name), read=read_alias)
        if not found:
            raise NotFound(ALIAS_KIND, name)
        return found[0]

    def aliases(self, account: str, *, key_id: str = "", after: str = "", limit: int) -> Sequence[KeyAlias]:
        """Return aliases by name, optionally only those of one key."""
        query = f"{_SELECT_ALIAS} WHERE account = ?1 AND name > ?2 AND (?3 = '' OR key = ?3) ORDER BY name LIMIT ?4"
        return self._rows(query, (account, after, key_id, limit), read=read_alias)

    def add_alias(self, alias: KeyAlias) -> None:
        """Name a key; AlreadyExists if the account has the alias."""

        def work(connection: sqlite3.Connection) -> None:
            require_key(connection, alias.account, alias.key_id)
            if not insert_alias(connection, alias):
                raise AlreadyExists(ALIAS_KIND, alias.name)

        self._database.write(work)

    def move_alias(self, account: str, name: str, *, key_id: str, now: datetime) -> None:
        """Let an alias name another key."""

        def work(connection: sqlite3.Connection) -> None:
            require_key(connection, account, key_id)
            moved = connection.execute(
                "UPDATE alias SET key = ?, changed_at = ? WHERE account = ? AND name = ?",
                (key_id, to_micros(now), account, name),
            )
            if not moved.rowcount:
                raise NotFound(ALIAS_KIND, name)

        self._database.write(work)

    def remove_alias(self, account: str, name: str) -> None:
        def work(connection: sqlite3.Connection) -> None:
            if not connection.execute("DELETE FROM alias WHERE account = ? AND name = ?", (account, name)).rowcount:
                raise NotFound(ALIAS_KIND, name)

        self._database.write(work)

    def s3_key(self, account: str, *, region: str, now: datetime) -> EncryptionKey:
        """Return the key of `alias/aws/s3`, which encrypts objects if a request names no key; create it on demand."""
        try:
            return _require_enabled(self.find(account, S3_ALIAS))
        except NotFound:
            key = replace(_new_key(account, KeyManager.AWS, region=region, now=now), description=_S3_DESCRIPTION)
        alias = KeyAlias(account, S3_ALIAS, key.id, region, now, now)
        material = self._new_material(key)

        def work(connection: sqlite3.Connection) -> None:
            # Another thread may have been faster.
            if insert_alias(connection, alias):
                insert_key(connection, key, material=material)

        self._database.write(work)
        return self.find(account, S3_ALIAS)

    def store_key(self, account: str, *, now: datetime) -> EncryptionKey:
        """Return the account's key for objects that ask for none of its own; create it on demand. No list shows it."""
        query = f"{_SELECT_KEY} WHERE account = ? AND manager = 'STORE'"
        if found := self._rows(query, (account,), read=read_key):
            return found[0]
        key = _new_key(account, KeyManager.STORE, region="", now=now)
        material = self._new_material(key)

        def work(connection: sqlite3.Connection) -> None:
            if not connection.execute(query, (account,)).fetchone():
                insert_key(connection, key, material=material)

        self._database.write(work)
        return self._rows(query, (account,), read=read_key)[0]

    def wrap(self, key_id: str, data: bytes, *, context: bytes) -> bytes:
        """Encrypt a few bytes with a key, whatever its account."""
        return self._cipher(key_id).wrap(data, context)

    def unwrap(self, key_id: str, data: bytes, *, context: bytes) -> bytes:
        """Decrypt what `wrap` returned; WrongKey if the key or the context is another."""
        return self._cipher(key_id).unwrap(data, context)

    def destroy_due(self, *, now: datetime) -> int:
        """Destroy the keys whose time of deletion has come, with their aliases; return how many.

        Nothing of them is left on the disk: who gets the file and the master key later cannot recover them.
        """
        if not self.exists:
            return 0

        def work(connection: sqlite3.Connection) -> list[str]:
            due = connection.execute("SELECT id FROM key WHERE deletion_at <= ?", (to_micros(now),)).fetchall()
            for row in due:
                connection.execute("DELETE FROM alias WHERE key = ?", row)
                connection.execute("DELETE FROM key WHERE id = ?", row)
            return [key_id for (key_id,) in due]

        destroyed = self._database.write(work)
        for key_id in destroyed:
            self._ciphers.pop(key_id, None)
        self._is_erasure_due = self._is_erasure_due or bool(destroyed)
        if self._is_erasure_due:
            self._database.empty_journal()
            self._is_erasure_due = False
        return len(destroyed)

    def check(self) -> None:
        """Raise Unavailable or Corrupt if there are keys but no master key, or another one than theirs."""
        if self.exists and self._fingerprint() is not None:
            self._unlock()

    def _new_material(self, key: EncryptionKey) -> str:
        return self._unlock().wrap(os.urandom(KEY_BYTES), key.id.encode()).hex()

    def _cipher(self, key_id: str) -> Cipher:
        """Return the cipher of a key. Its state is read each time, since another process may have changed it."""
        query = "SELECT state, account, region, material FROM key WHERE id = ?"
        found = self._rows(query, (key_id,), read=lambda *row: row)
        if not found:
            raise KeyDestroyed(key_id)
        [(state, account, region, material)] = found
        require_enabled(f"arn:aws:kms:{region}:{account}:key/{key_id}", KeyState(state))
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            cipher = self._ciphers[key_id] = Cipher(self._unwrap_material(key_id, material))
        return cipher

    def _unwrap_material(self, key_id: str, material: str) -> bytes:
        try:
            return self._unlock().unwrap(bytes.fromhex(material), key_id.encode())
        except (WrongKey, ValueError) as error:
            raise Corrupt(
                f"The encryption key {key_id} in {self.folder / DATABASE} is damaged; restore a backup."
            ) from error

    def _unlock(self) -> Cipher:
        """Return the cipher of the master key, which is created if there are no keys yet."""
        if self._master is not None:
            return self._master
        expected = self._fingerprint()
        file = self.master_key_file
        material = ensure_master_key(file) if expected is None else read_master_key(file)
        if material is None:
            raise Unavailable(
                f"The master key {file} is missing, so what is encrypted cannot be read. Put a copy of it in its "
                "place, owned by the yard's user and with mode 0600."
            )
        fingerprint = sha256(b"trainyard master key" + material).hexdigest()
        if expected is None:
            expected = self._database.write(partial(_note_fingerprint, fingerprint=fingerprint))
        if fingerprint != expected:
            raise Corrupt(
                f"{file} is not the master key with which {self.folder / DATABASE} was made. "
                "Put a copy of that one in its place."
            )
        self._master = Cipher(material)
        return self._master

    def _fingerprint(self) -> str | None:
        return self._database.row("SELECT fingerprint FROM master_key", (), read=str)

    @property
    def _database(self) -> Database:
        with self._lock:
            if self._opened is None:
                make_folder(self.folder, parents=True)
                (self.folder / DATABASE).touch(mode=PRIVATE_FILE)
                self._opened = Database(self.folder / DATABASE, schema=SCHEMA, version=VERSION, erases=True)
            return self._opened

    def _rows(self, query: str, parameters: Sequence[object], *, read: Callable[..., T]) -> list[T]:
        if not self.exists:
            return []
        with self._database.reading() as connection:
            return [read(*row) for row in connection.execute(query, parameters).fetchall()]


def _new_key(account: str, manager: KeyManager, *, region: str, now: datetime) -> EncryptionKey:
    # Agents, which create no keys, save the import.
    import uuid

    return EncryptionKey(str(uuid.uuid4()), account, region, KeyState.ENABLED, manager, now)


def _require_enabled(key: EncryptionKey) -> EncryptionKey:
    require_enabled(key.arn, key.state)
    return key


def _local_name(account: str, reference: str) -> str:
    """Return the id or the alias that a reference names; NotFound if it is the ARN of another account or service."""
    if not reference.startswith("arn:"):
        return reference
    _, _, service, _, owner, name = [*reference.split(":", 5), "", "", "", "", ""][:6]
    if (service, owner) != ("kms", account):
        raise NotFound(KEY_KIND, reference)
    return name.removeprefix("key/")


def _note_fingerprint(connection: sqlite3.Connection, *, fingerprint: str) -> str:
    """Store the fingerprint of the first master key; return the one that is stored."""
    connection.execute("INSERT INTO master_key SELECT ? WHERE NOT EXISTS (SELECT 1 FROM master_key)", (fingerprint,))
    stored: str = connection.execute("SELECT fingerprint FROM master_key").fetchone()[0]
    return stored
