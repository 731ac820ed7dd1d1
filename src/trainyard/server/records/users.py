"""Users and their key pairs."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.server.records.contract import AccessKey, User
from trainyard.server.records.schema import access_keys, users


def add(connection: Connection, user: User, key: AccessKey | None) -> None:
    named = select(users.c.account).where(users.c.name == user.name, users.c.removed_at.is_(None))
    if connection.execute(named).one_or_none() is not None:
        raise AlreadyExists("user", user.name)
    try:
        connection.execute(insert(users), asdict(user))
    except IntegrityError as error:
        # The account is taken, or the name has been taken since the check above.
        raise AlreadyExists("user", f"{user.name} ({user.account})") from error
    if key is not None:
        add_key(connection, key)


def load(connection: Connection, account: str) -> User:
    found = connection.execute(select(users).where(users.c.account == account)).one_or_none()
    if found is None:
        raise NotFound("user", account)
    return User(*found)


def load_all(connection: Connection) -> Sequence[User]:
    statement = select(users).where(users.c.removed_at.is_(None)).order_by(users.c.name)
    return [User(*row) for row in connection.execute(statement)]


def remove(connection: Connection, account: str, *, now: datetime) -> None:
    existing = update(users).where(users.c.account == account, users.c.removed_at.is_(None))
    if connection.execute(existing.values(removed_at=now)).rowcount == 0:
        raise NotFound("user", account)
    connection.execute(delete(access_keys).where(access_keys.c.account == account))


def add_key(connection: Connection, key: AccessKey) -> None:
    # Lock the user, so that a concurrent removal cannot leave a key behind.
    owner = select(users.c.account).where(users.c.account == key.account, users.c.removed_at.is_(None))
    if connection.execute(owner.with_for_update(read=True)).one_or_none() is None:
        raise NotFound("user", key.account)
    try:
        connection.execute(insert(access_keys), asdict(key))
    except IntegrityError as error:
        raise AlreadyExists("access key", key.id) from error


def add_keys(connection: Connection, keys: Sequence[AccessKey]) -> None:
    for key in keys:
        add_key(connection, key)


def load_key(connection: Connection, id: str) -> AccessKey:  # noqa: A002 - the domain's word
    found = connection.execute(select(access_keys).where(access_keys.c.id == id)).one_or_none()
    if found is None:
        raise NotFound("access key", id)
    return AccessKey(*found)


def load_permanent_keys(connection: Connection, account: str) -> Sequence[AccessKey]:
    of_user = select(access_keys).where(access_keys.c.account == account, access_keys.c.expires_at.is_(None))
    return [AccessKey(*row) for row in connection.execute(of_user.order_by(access_keys.c.created_at, access_keys.c.id))]


def remove_key(connection: Connection, account: str, id: str) -> None:  # noqa: A002 - the domain's word
    of_user = delete(access_keys).where(access_keys.c.id == id, access_keys.c.account == account)
    if connection.execute(of_user).rowcount == 0:
        raise NotFound("access key", id)


def remove_expired_keys(connection: Connection, *, now: datetime) -> int:
    return connection.execute(delete(access_keys).where(access_keys.c.expires_at <= now)).rowcount
