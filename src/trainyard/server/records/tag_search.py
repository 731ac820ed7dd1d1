"""Lists of resources that have tags, without a walk over those that have not.

The few that have a rare tag are looked up by it, and sorted. A tag that many have is met soon in whatever order, so the
list is read in that order and each resource asked for its tags, a window at a time: a page may then be short. With
`RARE` near the square root of (resources times page) neither way is ever long.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, select

from trainyard.server.records.contract import Page, Query, TagFilter
from trainyard.server.records.listing import beyond, conditions, directed, order_of, token_after
from trainyard.server.records.resources import resource_of
from trainyard.server.records.schema import RESOURCE_COLUMNS, tags
from trainyard.server.records.schema import resources as table

RARE = 1000
WINDOW = 50


def find(connection: Connection, query: Query) -> Page:
    """One page of those that have all the tags of the query; to be read in one snapshot."""
    assert query.tags, "a list without tags is read by listing.find"
    arns = min((_arns(connection, query, each) for each in query.tags), key=len)
    found = _among(connection, query, arns) if len(arns) <= RARE else _within_window(connection, query)
    resources = select(*RESOURCE_COLUMNS).where(table.c.id.in_([row.id for row in found.rows]))
    by_id = {row.id: resource_of(row) for row in connection.execute(resources)}
    return Page([by_id[row.id] for row in found.rows], None if found.end is None else token_after(query, found.end))


@dataclass(frozen=True, slots=True)
class _Found:
    """The places of one page, and behind which place the next one begins."""

    rows: Sequence[Row[Any]]
    end: Row[Any] | None


def _arns(connection: Connection, query: Query, wanted: TagFilter) -> Sequence[str]:
    """Of everything that has the tag, or more than RARE of them."""
    owned = [] if query.account is None else [tags.c.account == query.account]
    found: list[str] = []
    for value in wanted.values or (None,):
        one = TagFilter(wanted.key) if value is None else TagFilter(wanted.key, (value,))
        # In the order of an index, or PostgreSQL may read the table in the hope of meeting enough of them soon.
        statement = select(tags.c.arn).where(*owned, *_is(one)).order_by(tags.c.value, tags.c.arn)
        found += connection.execute(statement.limit(RARE + 1 - len(found))).scalars()
        if len(found) > RARE:
            break
    return found


def _among(connection: Connection, query: Query, arns: Sequence[str]) -> _Found:
    # The limit fences the look-up off: without it a planner may rather test the ARNs of all resources of the account.
    few = select(table).where(table.c.arn.in_(arns), table.c.arn != "").limit(RARE + 1).subquery()
    order = order_of(query, few.c)
    places = select(*order).where(*conditions(query, few.c), *beyond(query, order), _has_all(query, few.c))
    rows = connection.execute(places.order_by(*directed(query, order)).limit(query.limit + 1)).all()
    return _Found(rows[: query.limit], rows[query.limit - 1] if len(rows) > query.limit else None)


def _within_window(connection: Connection, query: Query) -> _Found:
    rows = connection.execute(window_statement(query)).all()
    fitting = [row for row in rows[:WINDOW] if row.fits][: query.limit]
    if len(fitting) == query.limit:
        return _Found(fitting, None if fitting[-1] is rows[-1] else fitting[-1])
    return _Found(fitting, rows[WINDOW - 1] if len(rows) > WINDOW else None)


def window_statement(query: Query) -> Select[Any]:
    """The next places in the order of a list, and whether what stands there has the tags."""
    order = order_of(query)
    places = select(*order, _has_all(query, table.c).label("fits")).where(*conditions(query), *beyond(query, order))
    return places.order_by(*directed(query, order)).limit(WINDOW + 1)


def _has_all(query: Query, c: Any) -> ColumnElement[bool]:
    # Not EXISTS, for which PostgreSQL may first read that tag of everything there is.
    looks = (
        select(tags.c.key).where(tags.c.account == c.account, tags.c.arn == c.arn, *_is(wanted)).limit(1)
        for wanted in query.tags
    )
    return and_(*(look.scalar_subquery().is_not(None) for look in looks))


def _is(wanted: TagFilter) -> list[ColumnElement[bool]]:
    of_key = tags.c.key == wanted.key
    return [of_key, tags.c.value.in_(wanted.values)] if wanted.values else [of_key]
