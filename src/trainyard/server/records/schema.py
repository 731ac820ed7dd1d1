"""The tables, and the types that carry our values into them and back.

What stands here is what the newest migration leaves behind; a test compares the two on both databases.
"""

import json
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.types import TypeEngine

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import Corrupt, InvalidRequest
from trainyard.server.records.contract import Body

REVISION = "0006"  # of the newest migration


class Word(TypeDecorator[str]):
    """Text that either database can keep, ordered by its UTF-8 bytes whatever the locale of the server."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        return Text(collation="C" if dialect.name == "postgresql" else None)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        if value is not None and not value.isascii():
            _require_encodable(value)
        if value is not None and "\0" in value:
            raise InvalidRequest(f"{_excerpt(value)} holds a NUL character; write it without.")
        return value


def _require_encodable(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{_excerpt(value)} is not valid Unicode; it holds half a surrogate pair.") from error


def _excerpt(value: str) -> str:
    return ascii(value if len(value) <= 60 else value[:60] + "…")


class Moment(TypeDecorator[datetime]):
    """An aware datetime, kept as integer UTC microseconds."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        return None if value is None else to_micros(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else from_micros(value)


class JsonText(TypeDecorator[Body]):
    """A JSON object, kept as ASCII text so that any string inside it survives."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Body | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> dict[str, Any] | None:  # noqa: ARG002
        if value is None:
            return None
        try:
            return json.loads(value)  # type: ignore[no-any-return]  # only objects are written
        except ValueError as error:
            raise Corrupt(
                f"A stored body cannot be read ({error}). Stop the yard and run `trainyard restore BACKUP`."
            ) from error


metadata = MetaData()

resources = Table(
    "resources",
    metadata,
    Column("id", Word, primary_key=True),
    Column("account", Word, nullable=False),
    Column("kind", Word, nullable=False),
    Column("name", Word, nullable=False),
    Column("region", Word, nullable=False),
    Column("status", Word, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("modified_at", Moment, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("body", JsonText, nullable=False),
    # Deferrable, because a restore may bring children before their parents.
    Column("parent", Word, ForeignKey("resources.id", ondelete="CASCADE", deferrable=True, initially="IMMEDIATE")),
    Column("arn", Word, nullable=False),
    Column("due_at", Moment),
    Column("line", Word),
    Column("lease_token", Word),
    Column("lease_worker", Word),
    Column("lease_expires_at", Moment),
)

events = Table(
    "events",
    metadata,
    Column("sequence", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    Column("at", Moment, nullable=False),
    Column("account", Word, nullable=False),
    Column("kind", Word, nullable=False),
    Column("subject", Word, nullable=False),
    Column("body", JsonText, nullable=False),
    Index("events_by_account", "account", "sequence"),
    sqlite_autoincrement=True,  # or a number could return after a delete
)

users = Table(
    "users",
    metadata,
    Column("account", Word, primary_key=True),
    Column("name", Word, nullable=False),
    Column("role", Word, nullable=False),
    Column("is_admin", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("removed_at", Moment),
)

access_keys = Table(
    "access_keys",
    metadata,
    Column("id", Word, primary_key=True),
    Column("secret", Word, nullable=False),
    Column("account", Word, ForeignKey("users.account"), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("session_token", Word),
    Column("expires_at", Moment),
    Column("role", Word),
    Column("session", Word),
    Index("access_keys_by_account", "account", "expires_at"),
    Index("access_keys_by_expiry", "expires_at"),
)

tags = Table(
    "tags",
    metadata,
    Column("account", Word, primary_key=True),
    Column("arn", Word, primary_key=True),
    Column("key", Word, primary_key=True),
    Column("value", Word, nullable=False),
    Index("tags_by_arn", "arn", "account", "key"),
    Index("tags_by_value", "key", "value", "arn"),
    Index("tags_by_account_value", "key", "account", "value", "arn"),
)

counters = Table(
    "counters",
    metadata,
    Column("account", Word, primary_key=True),
    Column("name", Word, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

facts = Table(
    "facts",
    metadata,
    Column("name", Word, primary_key=True),
    Column("value", Word, nullable=False),
)

# Alembic's own table, spelled here so that the usual start reads it without importing Alembic.
version = Table("alembic_version", MetaData(), Column("version_num", Text, primary_key=True))

RESOURCE_COLUMNS = [
    column for column in resources.columns if not column.name.startswith(("arn", "due_", "line", "lease_"))
]


def _partial_index(name: str, *columns: Column[Any], where: Any, unique: bool = False) -> None:
    # PostgreSQL's condition stands in its migrations alone: naming it here would import that dialect at every start.
    Index(name, *columns, unique=unique, sqlite_where=where)


def _listing_indexes() -> None:
    """One index for each scope, filter by status, and order that a list can have, so that any page is one range of one.

    Twelve trees a row, eighteen for one with a parent, cost a create about as much again; a list without its index
    would read the whole kind. Each ends with the name, where a search for a part of one finds it without the row.
    """
    c = resources.columns
    orders = {
        "name": [c.name],
        "created": [c.created_at],
        "modified": [c.modified_at],
        "status": [c.status, c.created_at],  # also: of one status, by creation
        "status_name": [c.status, c.name],
        "status_modified": [c.status, c.modified_at],
    }
    for order, columns in orders.items():
        ends = [*columns, c.id] if "name" in order else [*columns, c.id, c.name]
        if order != "name":
            Index(f"resources_by_account_{order}", c.account, c.kind, *ends)
        Index(f"resources_by_kind_{order}", c.kind, *ends)
        _partial_index(f"resources_by_parent_{order}", c.parent, c.kind, *ends, where=c.parent.is_not(None))
    Index("resources_by_account_name", c.account, c.kind, c.name, unique=True)


def _claiming_indexes() -> None:
    """Free and leased apart, so that a claim never walks over what others hold; and each account's own of a line."""
    c = resources.columns
    free = c.due_at.is_not(None) & c.lease_token.is_(None)
    _partial_index("resources_due", c.kind, c.due_at, c.id, where=free)
    _partial_index("resources_in_line", c.kind, c.line, c.account, c.due_at, c.id, where=free & c.line.is_not(None))
    _partial_index("resources_leased", c.kind, c.lease_expires_at, where=c.lease_token.is_not(None))


_listing_indexes()
_partial_index("resources_by_arn", resources.c.arn, where=resources.c.arn != "")
_claiming_indexes()
_partial_index("users_by_name", users.c.name, where=users.c.removed_at.is_(None), unique=True)
