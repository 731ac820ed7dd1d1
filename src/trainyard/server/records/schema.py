"""The tables, and the types that convert our values for them and back.

A test on both databases checks that these tables are what the newest migration leaves behind.
"""

import json
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Dialect,
    Double,
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

# The revision of the newest migration.
REVISION = "0009"


class Word(TypeDecorator[str]):
    """Text that both databases can store, ordered by its UTF-8 bytes whatever the locale of the server."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        return Text(collation="C" if dialect.name == "postgresql" else None)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        if value is not None and not value.isascii():
            _require_encodable(value)
        if value is not None and "\0" in value:
            raise InvalidRequest(f"{_excerpt(value)} contains a NUL character; remove it.")
        return value


def _require_encodable(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{_excerpt(value)} is not valid Unicode; it contains half a surrogate pair.") from error


def _excerpt(value: str) -> str:
    return ascii(value if len(value) <= 60 else value[:60] + "…")


class Moment(TypeDecorator[datetime]):
    """An aware datetime, stored as integer UTC microseconds."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        return None if value is None else to_micros(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else from_micros(value)


class JsonText(TypeDecorator[Body]):
    """A JSON object, stored as ASCII text so that any string inside it survives."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Body | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> dict[str, Any] | None:  # noqa: ARG002
        if value is None:
            return None
        try:
            # Only objects are written.
            return json.loads(value)  # type: ignore[no-any-return]
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
    # Deferrable, because a restore may insert children before their parents.
    Column("parent", Word, ForeignKey("resources.id", ondelete="CASCADE", deferrable=True, initially="IMMEDIATE")),
    Column("arn", Word, nullable=False),
    Column("due_at", Moment),
    Column("queue", Word),
    Column("lease_token", Word),
    Column("lease_worker", Word),
    Column("lease_expires_at", Moment),
    Column("state", Word, nullable=False, server_default=""),
    Column("priority", BigInteger, nullable=False, server_default="0"),
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
    # Without it, SQLite could reuse a number after a delete.
    sqlite_autoincrement=True,
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

resource_values = Table(
    "resource_values",
    metadata,
    # Deferrable, because a restore may insert values before their resources.
    Column(
        "resource",
        Word,
        ForeignKey("resources.id", ondelete="CASCADE", deferrable=True, initially="IMMEDIATE"),
        primary_key=True,
    ),
    Column("name", Word, primary_key=True),
    # Empty if the value is a number.
    Column("text", Word, primary_key=True),
    Column("number", Double),
    Column("account", Word, nullable=False),
    Column("kind", Word, nullable=False),
    # The table is the index of its key: SQLite then reads the values of a resource in one place.
    sqlite_with_rowid=False,
)

counters = Table(
    "counters",
    metadata,
    Column("account", Word, primary_key=True),
    Column("name", Word, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# Edges of the lineage. They have no foreign keys, because not every ARN is the one of a resource.
associations = Table(
    "associations",
    metadata,
    Column("account", Word, primary_key=True),
    Column("source", Word, primary_key=True),
    Column("destination", Word, primary_key=True),
    Column("kind", Word, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("source_type", Word, nullable=False),
    Column("destination_type", Word, nullable=False),
    Index("associations_by_destination", "account", "destination", "source"),
    Index("associations_by_source_created", "account", "source", "created_at", "destination"),
    Index("associations_by_destination_created", "account", "destination", "created_at", "source"),
    Index("associations_by_created", "account", "created_at", "source", "destination"),
)

facts = Table(
    "facts",
    metadata,
    Column("name", Word, primary_key=True),
    Column("value", Word, nullable=False),
)

# Alembic's own table, declared here so that a normal start reads it without importing Alembic.
version = Table("alembic_version", MetaData(), Column("version_num", Text, primary_key=True))


def prefix_range(column: Column[Any], prefix: str) -> list[ColumnElement[bool]]:
    """Return the conditions for text that starts with the prefix, as a range of an index in UTF-8 byte order."""
    if not prefix:
        return []
    end = prefix_end(prefix)
    return [column >= prefix] if end is None else [column >= prefix, column < end]


def prefix_end(prefix: str) -> str | None:
    """Return the smallest text after all text that starts with the prefix, or None if there is none."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    # Skip the surrogates, which are not characters.
    if 0xD800 <= following <= 0xDFFF:
        following = 0xE000
    return stem[:-1] + chr(following)


_INTERNAL_COLUMNS = ("arn", "due_", "state", "queue", "priority", "lease_")
RESOURCE_COLUMNS = [column for column in resources.columns if not column.name.startswith(_INTERNAL_COLUMNS)]


def _partial_index(name: str, *columns: Column[Any], where: Any, unique: bool = False) -> None:
    # Only the migrations state the condition for PostgreSQL: here it would import that dialect at every start.
    Index(name, *columns, unique=unique, sqlite_where=where)


def _listing_indexes() -> None:
    """Define one index for each scope, status filter and order of a list, so that any page is one range of an index.

    Twelve index entries per row, eighteen with a parent, double the cost of a create. But a list without its index
    would read the whole kind. Each index ends with the name, so that a search for part of a name does not read rows.
    """
    c = resources.columns
    orders = {
        "name": [c.name],
        "created": [c.created_at],
        "modified": [c.modified_at],
        # Also serves lists of one status by creation time.
        "status": [c.status, c.created_at],
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
    """Index free and leased resources separately, so that a claim never walks over leased ones; and queues by account.

    `state` is a column and not a condition of the indexes: SQLite does not match a condition with a bound parameter.
    """
    c = resources.columns
    free = c.due_at.is_not(None) & c.lease_token.is_(None)
    in_queue = free & c.queue.is_not(None)
    _partial_index("resources_due", c.kind, c.state, c.due_at, c.id, where=free)
    order = (c.queue, c.account, c.priority, c.due_at, c.id)
    _partial_index("resources_in_queue", c.kind, c.state, *order, where=in_queue)
    _partial_index("resources_leased", c.kind, c.lease_expires_at, where=c.lease_token.is_not(None))


def _value_indexes() -> None:
    """Index numbers and texts separately. The account comes first, so that one user's values cost nothing to others.

    The index of numbers has the texts too: with a condition, SQLite could use it only for queries that repeat the
    condition, and would then take that for the lower bound of a page.
    """
    c = resource_values.columns
    of_name = (c.kind, c.name, c.account)
    Index("resource_values_by_number", *of_name, c.number, c.resource)
    _partial_index("resource_values_by_text", *of_name, c.text, c.resource, where=c.number.is_(None))


_listing_indexes()
_value_indexes()
_partial_index("resources_by_arn", resources.c.arn, where=resources.c.arn != "")
_claiming_indexes()
_partial_index("users_by_name", users.c.name, where=users.c.removed_at.is_(None), unique=True)
