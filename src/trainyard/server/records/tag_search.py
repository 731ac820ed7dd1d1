"""Lists of resources by tag, without reading the resources that lack it.

The few resources with a rare tag are looked up by the tag and sorted. Resources with a common tag turn up soon in any
order, so the list is read in order, one window at a time, and each resource is checked for its tags: a page may then
be short. With `RARE` near the square root of (resources times page size), neither way takes long.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, select, true

from trainyard.server.records.contract import Page, Query, ResourceRevision, RevisionPage, TagFilter
from trainyard.server.records.listing import conditions, conditions_after, in_direction, order_columns, token_after
from trainyard.server.records.resources import resource_of
from trainyard.server.records.schema import RESOURCE_COLUMNS, tags
from trainyard.server.records.schema import resources as table

# A tag is rare if at most this many ARNs have it.
RARE = 1000
# How many resources one page checks for a common tag.
WINDOW = 50


def find(connection: Connection, query: Query) -> Page:
    """Return one page of the resources with all tags of the query. The connection must see one snapshot."""
    found = _find_rows(connection, query)
    resources = select(*RESOURCE_COLUMNS).where(table.c.id.in_([row.id for row in found.rows]))
    by_id = {row.id: resource_of(row) for row in connection.execute(resources)}
    return Page([by_id[row.id] for row in found.rows], None if found.end is None else token_after(query, found.end))


def find_revisions(connection: Connection, query: Query) -> RevisionPage:
    """Return one page of the resources with all tags of the query, without bodies."""
    found = _find_rows(connection, query)
    revisions = select(table.c.id, table.c.revision).where(table.c.id.in_([row.id for row in found.rows]))
    by_id = {row.id: ResourceRevision(row.id, row.revision) for row in connection.execute(revisions)}
    end = None if found.end is None else token_after(query, found.end)
    return RevisionPage([by_id[row.id] for row in found.rows], end)


@dataclass(frozen=True, slots=True)
class _PageRows:
    """The rows of one page, and the row after which the next page starts."""

    rows: Sequence[Row[Any]]
    end: Row[Any] | None


def _find_rows(connection: Connection, query: Query) -> _PageRows:
    assert query.tags, "listing reads a list without tags"
    arns = min((find_arns(connection, query, each) for each in query.tags), key=len)
    return _select_among(connection, query, arns) if len(arns) <= RARE else _select_window(connection, query)


def find_arns(connection: Connection, query: Query, wanted: TagFilter) -> Sequence[str]:
    """Return the ARNs that have the tag, or more than RARE of them."""
    owned = [] if query.account is None else [tags.c.account == query.account]
    found: list[str] = []
    for value in wanted.values or (None,):
        one = TagFilter(wanted.key) if value is None else TagFilter(wanted.key, (value,))
        # Ordered like an index, because PostgreSQL may otherwise scan the table until it has enough rows.
        statement = select(tags.c.arn).where(*owned, *_matches(one)).order_by(tags.c.value, tags.c.arn)
        found += connection.execute(statement.limit(RARE + 1 - len(found))).scalars()
        if len(found) > RARE:
            break
    return found


def _select_among(connection: Connection, query: Query, arns: Sequence[str]) -> _PageRows:
    # The limit forces the look-up first. Without it, a planner may test the ARNs of all resources of the account.
    few = select(table).where(table.c.arn.in_(arns), table.c.arn != "").limit(RARE + 1).subquery()
    order = order_columns(query, few.c)
    positions = select(*order).where(*conditions(query, few.c), *conditions_after(query, order), has_all(query, few.c))
    rows = connection.execute(positions.order_by(*in_direction(query, order)).limit(query.limit + 1)).all()
    return _PageRows(rows[: query.limit], rows[query.limit - 1] if len(rows) > query.limit else None)


def _select_window(connection: Connection, query: Query) -> _PageRows:
    rows = connection.execute(window_statement(query)).all()
    fitting = [row for row in rows[:WINDOW] if row.fits][: query.limit]
    if len(fitting) == query.limit:
        return _PageRows(fitting, None if fitting[-1] is rows[-1] else fitting[-1])
    return _PageRows(fitting, rows[WINDOW - 1] if len(rows) > WINDOW else None)


def window_statement(query: Query) -> Select[Any]:
    """Select the next rows of a list in order, and whether each has all the tags."""
    order = order_columns(query)
    positions = select(*order, has_all(query, table.c).label("fits")).where(
        *conditions(query), *conditions_after(query, order)
    )
    return positions.order_by(*in_direction(query, order)).limit(WINDOW + 1)


def has_all(query: Query, c: Any) -> ColumnElement[bool]:
    """Return the condition that a resource has all tags of the query."""
    # Not EXISTS, because for it PostgreSQL may first read every row with that tag.
    lookups = (
        select(tags.c.key).where(tags.c.account == c.account, tags.c.arn == c.arn, *_matches(wanted)).limit(1)
        for wanted in query.tags
    )
    return and_(true(), *(lookup.scalar_subquery().is_not(None) for lookup in lookups))


def _matches(wanted: TagFilter) -> list[ColumnElement[bool]]:
    of_key = tags.c.key == wanted.key
    return [of_key, tags.c.value.in_(wanted.values)] if wanted.values else [of_key]
