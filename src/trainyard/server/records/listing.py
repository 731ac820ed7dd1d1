"""Lists of resources: filtered, ordered, and cut into stable pages.

A page starts where the previous one ended in the order (sort value, then id), so its cost does not depend on the pages
before it. Each order has an index for each scope (an account, a parent, the whole kind), with and without a status.
Parts of names, and a range of times in a list ordered by something else, are tested row by row within the scope.
"""

from collections.abc import Iterator, Sequence
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

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import Page, Query, ResourceRevision, RevisionPage, SortBy
from trainyard.server.records.page_tokens import decode_columns, encode_position
from trainyard.server.records.resources import resource_of
from trainyard.server.records.schema import RESOURCE_COLUMNS, prefix_end
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


def find_revisions(connection: Connection, query: Query) -> RevisionPage:
    ordered = [_c[key] for key in _order(query) if key != "id"]
    rows = connection.execute(page_statement(query, [_c.id, _c.revision, *ordered])).all()
    found = [ResourceRevision(row.id, row.revision) for row in rows[: query.limit]]
    return RevisionPage(found, token_after(query, rows[query.limit - 1]) if len(rows) > query.limit else None)


def count(connection: Connection, query: Query) -> int:
    return connection.execute(select(func.count()).select_from(table).where(*conditions(query))).scalar_one()


def page_statement(query: Query, columns: Sequence[Column[Any]] = RESOURCE_COLUMNS) -> Select[Any]:
    """Select one row more than the page has, to know whether another page follows."""
    if query.limit < 1:
        raise InvalidRequest(f"A page cannot have {query.limit} entries; ask for 1 or more.")
    # Otherwise SQLite walks the whole kind in order instead of sorting the few rows with that name.
    order = order_columns(query, _c, is_hidden=bool(query.name))
    statement = select(*columns).where(*conditions(query), *conditions_after(query, order))
    return statement.order_by(*in_direction(query, order)).limit(query.limit + 1)


def conditions(query: Query, c: _Columns = _c) -> list[ColumnElement[bool]]:
    """Return the conditions on the columns of a resource, without its tags and the start of the page."""
    return [*_scope(query, c), *_filters(query, c)]


def order_columns(query: Query, c: _Columns = _c, *, is_hidden: bool = False) -> list[ColumnElement[Any]]:
    """Return the values that order a list. If hidden, the planner does not see that an index has them in order."""
    return [func.coalesce(c[key], c[key]) if is_hidden else c[key] for key in _order(query)]


def in_direction(query: Query, order: Sequence[ColumnElement[Any]]) -> list[ColumnElement[Any]]:
    return [key.desc() if query.descending else key for key in order]


def conditions_after(query: Query, order: Sequence[ColumnElement[Any]]) -> list[ColumnElement[bool]]:
    """Return the condition that skips the pages before this one; none for the first page."""
    if not query.after:
        return []
    keys = [_c[key] for key in _order(query)]
    last = tuple_(*(literal(value, key.type) for key, value in zip(keys, decode_columns(query, keys), strict=True)))
    return [tuple_(*order) < last if query.descending else tuple_(*order) > last]


def token_after(query: Query, row: Row[Any]) -> str:
    """Return the token of a page that ends with this row, which has the columns that order the list."""
    return encode_position(query, [getattr(row, key) for key in _order(query)])


def _scope(query: Query, c: _Columns) -> list[ColumnElement[bool]]:
    of_kind = [c.kind == query.kind]
    if query.parent is None:
        return of_kind if query.account is None else [*of_kind, c.account == query.account]
    of_parent = [*of_kind, c.parent == query.parent]
    if query.account is None:
        return of_parent
    # A child has the account of its parent. With a condition on the parent only, the planners choose the right index.
    parent = table.alias("parent").c
    return [*of_parent, select(parent.id).where(parent.id == query.parent, parent.account == query.account).exists()]


def _filters(query: Query, c: _Columns) -> list[ColumnElement[bool]]:
    found = list(_bounds(query, c))
    if query.name:
        found.append(c.name == query.name)
    if query.status:
        found.append(c.status == query.status)
    if query.name_contains:
        found.append(_TextPosition(c.name, query.name_contains) > 0)
    found += [_TextPosition(func.lower(c.name), word) > 0 for word in query.name_words]
    return found


class _TextPosition(FunctionElement[int]):
    """The position of one text in another, case-sensitive and counted from 1; 0 if it does not occur."""

    inherit_cache = True
    type = Integer()


@compiles(_TextPosition, "sqlite")
def _sqlite_position(position: _TextPosition, compiler: SQLCompiler, **options: Any) -> str:
    return f"instr({compiler.process(position.clauses, **options)})"


@compiles(_TextPosition, "postgresql")
def _postgresql_position(position: _TextPosition, compiler: SQLCompiler, **options: Any) -> str:
    return f"strpos({compiler.process(position.clauses, **options)})"


def _bounds(query: Query, c: _Columns) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions of ranges, except a bound that the end of the previous page implies.

    Given two lower bounds, SQLite may start from either. From the wrong one it reads every earlier page again.
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
    end = prefix_end(query.name_prefix)
    if end is not None and below != "name":
        yield c.name < end


def _order(query: Query) -> tuple[str, ...]:
    keys = _ORDERS[query.sort_by]
    return keys[1:] if query.status and query.sort_by is SortBy.STATUS else keys
