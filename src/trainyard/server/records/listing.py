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

from sqlalchemy import Column, ColumnElement, Connection, Select, func, literal, select, tuple_

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import Page, Query, Resource, SortBy
from trainyard.server.records.prefixes import first_beyond
from trainyard.server.records.resources import resource_of
from trainyard.server.records.schema import RESOURCE_COLUMNS, Moment
from trainyard.server.records.schema import resources as table

_c = table.c

_ORDERS: dict[SortBy, tuple[Column[Any], ...]] = {
    SortBy.NAME: (_c.name, _c.id),
    SortBy.CREATED: (_c.created_at, _c.id),
    SortBy.MODIFIED: (_c.modified_at, _c.id),
    SortBy.STATUS: (_c.status, _c.created_at, _c.id),
}


def find(connection: Connection, query: Query) -> Page:
    rows = connection.execute(page_statement(query)).all()
    found = [resource_of(row) for row in rows[: query.limit]]
    return Page(found, _token(query, found[-1]) if len(rows) > query.limit else None)


def page_statement(query: Query) -> Select[Any]:
    """Asks for one row more than the page has, to know whether there is another."""
    if query.limit < 1:
        raise InvalidRequest(f"A page of {query.limit} cannot be listed; ask for 1 or more.")
    statement = select(*RESOURCE_COLUMNS).where(*_scope(query), *_filters(query))
    if query.after:
        statement = statement.where(_beyond(query))
    keys = _keys(query)
    return statement.order_by(*(key.desc() if query.descending else key for key in keys)).limit(query.limit + 1)


def _scope(query: Query) -> list[ColumnElement[bool]]:
    of_kind = [_c.kind == query.kind]
    if query.parent is None:
        return of_kind if query.account is None else [*of_kind, _c.account == query.account]
    of_parent = [*of_kind, _c.parent == query.parent]
    if query.account is None:
        return of_parent
    # A child has the account of its parent. Asked of the parent alone, it leaves the planners no doubt about the index.
    parent = table.alias("parent").c
    return [*of_parent, select(parent.id).where(parent.id == query.parent, parent.account == query.account).exists()]


def _filters(query: Query) -> list[ColumnElement[bool]]:
    conditions = list(_bounds(query))
    if query.name:
        conditions.append(_c.name == query.name)
    if query.status:
        conditions.append(_c.status == query.status)
    if query.name_contains:
        # The one test for a part of a text that both databases know and that minds the case.
        conditions.append(func.replace(_c.name, query.name_contains, "") != _c.name)
    return conditions


def _bounds(query: Query) -> Iterator[ColumnElement[bool]]:
    """The ranges, less the end that the place of the last page implies.

    Given two lower ends SQLite starts from either, and from the wrong one it reads every page before this one again.
    """
    leading = _order(query)[0] if query.after else None
    above, below = (None, leading) if query.descending else (leading, None)
    if query.created_after is not None and above is not _c.created_at:
        yield _c.created_at > query.created_after
    if query.created_before is not None and below is not _c.created_at:
        yield _c.created_at < query.created_before
    if query.modified_after is not None and above is not _c.modified_at:
        yield _c.modified_at > query.modified_after
    if query.modified_before is not None and below is not _c.modified_at:
        yield _c.modified_at < query.modified_before
    if query.name_prefix and above is not _c.name:
        yield _c.name >= query.name_prefix
    end = first_beyond(query.name_prefix)
    if end is not None and below is not _c.name:
        yield _c.name < end


def _order(query: Query) -> tuple[Column[Any], ...]:
    keys = _ORDERS[query.sort_by]
    return keys[1:] if query.status and query.sort_by is SortBy.STATUS else keys


def _keys(query: Query) -> list[ColumnElement[Any]]:
    """The order, hidden from the planner where a name finds the few there are.

    SQLite would otherwise rather walk the whole kind in its order than sort them.
    """
    return [func.coalesce(key, key) if query.name else key for key in _order(query)]


def _beyond(query: Query) -> ColumnElement[bool]:
    order = _order(query)
    place = tuple_(*(literal(value, key.type) for key, value in zip(order, _place(query, order), strict=True)))
    keys = tuple_(*_keys(query))
    return keys < place if query.descending else keys > place


def _token(query: Query, last: Resource) -> str:
    values = {
        _c.name: last.key.name,
        _c.created_at: to_micros(last.created_at),
        _c.modified_at: to_micros(last.modified_at),
        _c.status: last.status,
        _c.id: last.id,
    }
    content = [_fingerprint(query), *(values[key] for key in _order(query))]
    return base64.urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).decode()


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
