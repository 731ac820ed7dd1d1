"""Lists of resources by indexed values, in the order of a column or of a value, without reading all resources.

The few resources with a rare value or tag are looked up by it and sorted. Resources with common values turn up soon in
any order, so the list is read in order, one window at a time, and each resource is checked. A page checks at most
`MOST_CHECKED` resources, so it may be short although more follow.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Row,
    Select,
    and_,
    func,
    literal,
    or_,
    select,
    true,
    tuple_,
)

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import Page, Query, ResourceId, ResourceRevision, RevisionPage, ValueFilter
from trainyard.server.records.listing import conditions, conditions_after, in_direction, order_columns, token_after
from trainyard.server.records.page_tokens import decode_position, encode_position, wrong_token
from trainyard.server.records.resources import load_many
from trainyard.server.records.schema import Word
from trainyard.server.records.schema import resource_values as values
from trainyard.server.records.schema import resources as table
from trainyard.server.records.tag_search import RARE as RARE_TAG
from trainyard.server.records.tag_search import find_arns, has_all

# A value is rare if at most this many resources have it.
RARE = 1000
# The first window is as long as a page; each further one is twice as long, up to this length.
LONGEST_WINDOW = 2000
MOST_CHECKED = 10_000

# Without the bodies, which are long: a selection with a limit reads all its columns.
_FILTERED = [column for column in table.columns if column.name != "body"]


def find(connection: Connection, query: Query) -> Page:
    """Return one page of the resources with the values of the query. The connection must see one snapshot."""
    found = _find_rows(connection, query)
    by_id = {resource.id: resource for resource in load_many(connection, found.ids)}
    return Page([by_id[each] for each in found.ids], found.next_after)


def find_revisions(connection: Connection, query: Query) -> RevisionPage:
    """Return one page of the resources with the values of the query, without bodies."""
    found = _find_rows(connection, query)
    revisions = select(table.c.id, table.c.revision).where(table.c.id.in_(found.ids))
    by_id = {row.id: ResourceRevision(row.id, row.revision) for row in connection.execute(revisions)}
    return RevisionPage([by_id[each] for each in found.ids], found.next_after)


@dataclass(frozen=True, slots=True)
class _PageIds:
    """The resources of one page, and the token of the next page."""

    ids: Sequence[ResourceId]
    next_after: str | None


def _find_rows(connection: Connection, query: Query) -> _PageIds:
    if query.limit < 1:
        raise InvalidRequest(f"A page cannot have {query.limit} entries; ask for 1 or more.")
    order: _Order = _ValueOrder(query) if query.order_by_value else _ColumnOrder(query)
    few = _find_few(connection, query)
    if few is not None:
        rows = connection.execute(order.among(few)).all()
        return _PageIds([row.id for row in rows[: query.limit]], order.end(rows) if len(rows) > query.limit else None)
    return _walk(connection, query, order)


def _walk(connection: Connection, query: Query, order: "_Order") -> _PageIds:
    """Read the list in order until the page is full, it ends, or enough resources were checked."""
    found: list[ResourceId] = []
    length, checked = query.limit, 0
    while True:
        rows = order.window(connection, length)
        for number, row in enumerate(rows[:length], 1):
            if row.fits:
                found.append(row.id)
            if len(found) == query.limit:
                return _PageIds(found, order.token(row) if number < len(rows) else None)
        checked += length
        if len(rows) <= length:
            return _PageIds(found, None)
        if checked >= MOST_CHECKED:
            return _PageIds(found, order.token(rows[length - 1]))
        order = order.after(rows[length - 1])
        length = min(length * 2, LONGEST_WINDOW)


def _find_few(connection: Connection, query: Query) -> Select[Any] | None:
    """Return a selection of at most RARE resources that has all that the query can find; None if there is none."""
    counts = {wanted: _count(connection, query, wanted) for wanted in query.values if not wanted.is_absent}
    rarest = min(counts, key=counts.__getitem__, default=None)
    if rarest is not None and counts[rarest] <= RARE:
        ids = [
            id_
            for each in _index_parts(connection, query, rarest)
            for id_ in connection.execute(each.limit(RARE)).scalars()
        ]
        # The limit forces the look-up first. Without it, a planner may test all resources of the account.
        return select(*_FILTERED).where(table.c.id.in_(ids)).limit(RARE + 1)
    for tag in query.tags:
        arns = find_arns(connection, query, tag)
        if len(arns) <= RARE_TAG:
            return select(*_FILTERED).where(table.c.arn.in_(arns), table.c.arn != "").limit(RARE_TAG + 1)
    if query.name:
        return select(*_FILTERED).where(*conditions(query)).limit(RARE + 1)
    return None


def _count(connection: Connection, query: Query, wanted: ValueFilter) -> int:
    """Count the resources with the value, but stop above RARE."""
    count = 0
    for part in _index_parts(connection, query, wanted):
        some = part.limit(RARE + 1 - count).subquery()
        count += connection.execute(select(func.count()).select_from(some)).scalar_one()
        if count > RARE:
            break
    return count


def _index_parts(connection: Connection, query: Query, wanted: ValueFilter) -> Iterator[Select[Any]]:
    """Yield the selections of the resources with the value, each a range of an index."""
    for account in _accounts(connection, query, wanted.name):
        for each in _index_ranges(wanted):
            key = (values.c.kind == query.kind, values.c.name == wanted.name, values.c.account == account)
            statement = select(values.c.resource).where(*key, *each.conditions)
            # Ordered like an index, because PostgreSQL may otherwise scan the table until it has enough rows.
            yield statement.order_by(each.column, values.c.resource)


def _accounts(connection: Connection, query: Query, name: str) -> Iterator[str]:
    """Yield the accounts that have a value of this name, by one step in an index for each."""
    if query.account is not None:
        yield query.account
        return
    of_name = (values.c.kind == query.kind, values.c.name == name)
    account: str | None = ""
    while account is not None:
        following = select(values.c.account).where(*of_name, values.c.account > account)
        account = connection.execute(following.order_by(values.c.account).limit(1)).scalar_one_or_none()
        if account is not None:
            yield account


@dataclass(frozen=True, slots=True)
class _IndexRange:
    """A range of the index of numbers or of texts, without the columns that it starts with."""

    column: ColumnElement[Any]
    conditions: Sequence[ColumnElement[bool]]


def _index_ranges(wanted: ValueFilter) -> Sequence[_IndexRange]:
    numbers, texts = values.c.number, values.c.text
    found = [_IndexRange(texts, [numbers.is_(None), texts == each]) for each in wanted.texts]
    if _has_range(wanted) or not wanted.texts:
        found.append(_IndexRange(numbers, list(_bounds(wanted, values.c))))
    if not _has_range(wanted) and not wanted.texts:
        found.append(_IndexRange(texts, [numbers.is_(None)]))
    return found


def _has_range(wanted: ValueFilter) -> bool:
    return wanted.low is not None or wanted.high is not None


def _bounds(wanted: ValueFilter, c: Any) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions on a number, with one lower bound: from the lower of two, SQLite would read all between."""
    yield c.number.is_not(None) if wanted.low is None else c.number >= wanted.low
    if wanted.high is not None:
        yield c.number <= wanted.high


def _has_values(query: Query, resource: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that a resource passes all value filters of the query, as look-ups by its key."""
    tests: list[ColumnElement[bool]] = [true()]
    for wanted in query.values:
        c = values.alias().c
        lookup = select(c.name).where(c.resource == resource, c.name == wanted.name)
        allowed = [and_(*_bounds(wanted, c))] if _has_range(wanted) else []
        if wanted.texts:
            allowed.append(and_(c.number.is_(None), c.text.in_(wanted.texts)))
        if allowed:
            lookup = lookup.where(or_(*allowed))
        # Not EXISTS, because for it PostgreSQL may first read every row with that value.
        found = lookup.limit(1).scalar_subquery()
        tests.append(found.is_(None) if wanted.is_absent else found.is_not(None))
    return and_(*tests)


class _ColumnOrder:
    """The order of a list by columns of the resources."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def among(self, few: Select[Any]) -> Select[Any]:
        query, c = self._query, few.subquery().c
        order = order_columns(query, c)
        rows = select(*order).where(
            *conditions(query, c), *conditions_after(query, order), has_all(query, c), _has_values(query, c.id)
        )
        return rows.order_by(*in_direction(query, order)).limit(query.limit + 1)

    def window(self, connection: Connection, length: int) -> Sequence[Row[Any]]:
        query = self._query
        order = order_columns(query)
        fits = and_(has_all(query, table.c), _has_values(query, table.c.id)).label("fits")
        rows: Select[Any] = select(*order, fits).where(*conditions(query), *conditions_after(query, order))
        return connection.execute(rows.order_by(*in_direction(query, order)).limit(length + 1)).all()

    def after(self, row: Row[Any]) -> "_ColumnOrder":
        return _ColumnOrder(replace(self._query, after=self.token(row)))

    def end(self, rows: Sequence[Row[Any]]) -> str:
        return self.token(rows[self._query.limit - 1])

    def token(self, row: Row[Any]) -> str:
        return token_after(self._query, row)


class _ValueOrder:
    """The order of a list by a number, then by id. The pages of all accounts are merged."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def among(self, few: Select[Any]) -> Select[Any]:
        query, c, v = self._query, few.subquery().c, values.alias().c
        rows = select(v.number, c.id).where(v.resource == c.id, v.name == query.order_by_value, *self._start(v))
        rows = rows.where(*conditions(query, c), has_all(query, c), _has_values(query, c.id))
        return rows.order_by(*self._directed(v.number, c.id)).limit(query.limit + 1)

    def window(self, connection: Connection, length: int) -> Sequence[Row[Any]]:
        query = self._query
        of_accounts = [
            connection.execute(self._window_statement(account, length)).all()
            for account in _accounts(connection, query, query.order_by_value)
        ]
        merged = heapq.merge(*of_accounts, key=itemgetter(0, 1), reverse=query.descending)
        return [row for row, _ in zip(merged, range(length + 1), strict=False)]

    def after(self, row: Row[Any]) -> "_ValueOrder":
        return _ValueOrder(replace(self._query, after=self.token(row)))

    def end(self, rows: Sequence[Row[Any]]) -> str:
        return self.token(rows[self._query.limit - 1])

    def token(self, row: Row[Any]) -> str:
        return encode_position(self._query, [row.number, row.id])

    def _window_statement(self, account: str, length: int) -> Select[Any]:
        """Select the next resources of an account in order, and whether each is one that the query finds."""
        query, v, c = self._query, values.c, table.c
        key = (v.kind == query.kind, v.name == query.order_by_value, v.account == account)
        fits: list[ColumnElement[bool]] = [_has_values(query, v.resource)]
        # Without the kind and the account, which the index of values has.
        of_columns = conditions(replace(query, account=None), c)[1:]
        if of_columns or query.tags:
            # Looked up rather than joined, so that the planner keeps to the order of the index.
            row = select(c.id).where(c.id == v.resource, *of_columns, has_all(query, c)).limit(1).scalar_subquery()
            fits.append(row.is_not(None))
        rows = select(v.number, v.resource.label("id"), and_(*fits).label("fits")).where(*key, *self._start(v))
        return rows.order_by(*self._directed(v.number, v.resource)).limit(length + 1)

    def _directed(self, *order: ColumnElement[Any]) -> list[ColumnElement[Any]]:
        return in_direction(self._query, order)

    def _start(self, v: Any) -> list[ColumnElement[bool]]:
        """Return the conditions that skip the pages before this one, and those without a number."""
        if not self._query.after:
            return [v.number.is_not(None)]
        number, id_ = _position(self._query)
        last = tuple_(literal(number, Double()), literal(id_, Word()))
        here = tuple_(v.number, v.resource)
        # With one lower bound, as above.
        return [v.number.is_not(None), here < last] if self._query.descending else [here > last]


_Order = _ColumnOrder | _ValueOrder


def _position(query: Query) -> tuple[float, str]:
    """Return the number and the id after which a page starts, read from its token."""
    match decode_position(query):
        case [float(number), str(id_)]:
            return number, id_
    raise wrong_token()
