"""Lists of resources: filtered, ordered, and cut into pages that hold still.

A page is read from where the last one ended in the order (sort value, then id), so its cost does not grow with what
lies before it. Each order has an index for each scope (an account, a parent, the whole kind), with and without a
status. `name_contains`, and a range of times in another order than that time's, are tested row by row within the scope.
"""

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Column,
    ColumnCollection,
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    func,
    literal,
    select,
    tuple_,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import Page, Query, SortBy
from trainyard.server.records.prefixes import first_beyond
from trainyard.server.records.resources import resource_of
from trainyard.server.records.schema import RESOURCE_COLUMNS, Moment
from trainyard.server.records.schema import resources as table

_c = table.c
_Columns = ColumnCollection[str, ColumnElement[Any]]

_ORDERS: dict[SortBy, tuple[str, ...]] = {
    SortBy.NAME: ("name", "id"),
    SortBy.CREATED: ("created_at", "id"),
    SortBy.MODIFIED: ("modified_at", "id"),
    SortBy.STATUS: ("status", "created_at", "id"),
}


def find(connection: Connection, query: Query) -> Page:
    rows = connection.execute(page_statement(query)).all()
    found = [resource_of(row) for row in rows[: query.limit]]
    return Page(found, token_after(query, rows[query.limit - 1]) if len(rows) > query.limit else None)


def count(connection: Connection, query: Query) -> int:
    return connection.execute(select(func.count()).select_from(table).where(*conditions(query))).scalar_one()


def page_statement(query: Query) -> Select[Any]:
    """Asks for one row more than the page has, to know whether there is another."""
    if query.limit < 1:
        raise InvalidRequest(f"A page of {query.limit} cannot be listed; ask for 1 or more.")
    # SQLite would rather walk the whole kind in its order than sort the few that have a name.
    order = order_of(query, _c, is_hidden=bool(query.name))
    statement = select(*RESOURCE_COLUMNS).where(*conditions(query), *beyond(query, order))
    return statement.order_by(*directed(query, order)).limit(query.limit + 1)


def conditions(query: Query, c: _Columns = _c) -> list[ColumnElement[bool]]:
    """What the columns of a resource must hold, its tags and the place of the page aside."""
    return [*_scope(query, c), *_filters(query, c)]


def order_of(query: Query, c: _Columns = _c, *, is_hidden: bool = False) -> list[ColumnElement[Any]]:
    """The values that order a list; hidden, the planner does not see that an index has them in order."""
    return [func.coalesce(c[key], c[key]) if is_hidden else c[key] for key in _order(query)]


def directed(query: Query, order: Sequence[ColumnElement[Any]]) -> list[ColumnElement[Any]]:
    return [key.desc() if query.descending else key for key in order]


def beyond(query: Query, order: Sequence[ColumnElement[Any]]) -> list[ColumnElement[bool]]:
    """What lies behind the place where the last page ended; nothing for the first page."""
    if not query.after:
        return []
    keys = [_c[key] for key in _order(query)]
    place = tuple_(*(literal(value, key.type) for key, value in zip(keys, _place(query, keys), strict=True)))
    return [tuple_(*order) < place if query.descending else tuple_(*order) > place]


def token_after(query: Query, row: Row[Any]) -> str:
    """The token of a page that ends with this row, which has the columns that order the list."""
    values = [getattr(row, key) for key in _order(query)]
    content = [_fingerprint(query), *(to_micros(each) if isinstance(each, datetime) else each for each in values)]
    return base64.urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).decode()


def _scope(query: Query, c: _Columns) -> list[ColumnElement[bool]]:
    of_kind = [c.kind == query.kind]
    if query.parent is None:
        return of_kind if query.account is None else [*of_kind, c.account == query.account]
    of_parent = [*of_kind, c.parent == query.parent]
    if query.account is None:
        return of_parent
    # A child has the account of its parent. Asked of the parent alone, it leaves the planners no doubt about the index.
    parent = table.alias("parent").c
    return [*of_parent, select(parent.id).where(parent.id == query.parent, parent.account == query.account).exists()]


def _filters(query: Query, c: _Columns) -> list[ColumnElement[bool]]:
    found = list(_bounds(query, c))
    if query.name:
        found.append(c.name == query.name)
    if query.status:
        found.append(c.status == query.status)
    if query.name_contains:
        found.append(_Place(c.name, query.name_contains) > 0)
    return found


class _Place(FunctionElement[int]):
    """Where a text holds another, letter by letter, counted from 1; 0 where it does not."""

    inherit_cache = True
    type = Integer()


@compiles(_Place, "sqlite")
def _sqlite_place(place: _Place, compiler: SQLCompiler, **options: Any) -> str:
    return f"instr({compiler.process(place.clauses, **options)})"


@compiles(_Place, "postgresql")
def _postgresql_place(place: _Place, compiler: SQLCompiler, **options: Any) -> str:
    return f"strpos({compiler.process(place.clauses, **options)})"


def _bounds(query: Query, c: _Columns) -> Iterator[ColumnElement[bool]]:
    """The ranges, less the end that the place of the last page implies.

    Given two lower ends SQLite starts from either, and from the wrong one it reads every page before this one again.
    """
    leading = _order(query)[0] if query.after else None
    above, below = (None, leading) if query.descending else (leading, None)
    if query.created_after is not None and above != "created_at":
        yield c.created_at > query.created_after
    if query.created_before is not None and below != "created_at":
        yield c.created_at < query.created_before
    if query.modified_after is not None and above != "modified_at":
        yield c.modified_at > query.modified_after
    if query.modified_before is not None and below != "modified_at":
        yield c.modified_at < query.modified_before
    if query.name_prefix and above != "name":
        yield c.name >= query.name_prefix
    end = first_beyond(query.name_prefix)
    if end is not None and below != "name":
        yield c.name < end


def _order(query: Query) -> tuple[str, ...]:
    keys = _ORDERS[query.sort_by]
    return keys[1:] if query.status and query.sort_by is SortBy.STATUS else keys


def _place(query: Query, order: Sequence[Column[Any]]) -> list[str | datetime]:
    try:
        fingerprint, *values = json.loads(base64.b64decode(query.after, altchars=b"-_", validate=True))
        if fingerprint != _fingerprint(query):
            raise ValueError("the token of another list")
        return [_value(key, value) for key, value in zip(order, values, strict=True)]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidRequest(
            "The page token does not belong to this list; use it with the same filters and order, or start again."
        ) from error


def _value(key: Column[Any], value: object) -> str | datetime:
    match value:
        case int() if isinstance(key.type, Moment):
            return from_micros(value)
        case str() if not isinstance(key.type, Moment):
            return value
    raise TypeError(f"{value} is no {key.name}")


def _fingerprint(query: Query) -> int:
    """Of all that decides which resources are listed and in which order; the size of a page may vary."""
    return zlib.crc32(repr(replace(query, limit=1, after="")).encode("utf-8", "surrogatepass"))
