"""Leases: one worker at a time holds a resource that is due."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select, update

from trainyard.server.records import counting, events, resources, users
from trainyard.server.records.contract import Change, Claim, NewEvent, Resource, ResourceId, Waiting
from trainyard.server.records.schema import RESOURCE_COLUMNS, Moment
from trainyard.server.records.schema import resources as table

_NOW = bindparam("moment", type_=Moment)
_KIND = table.c.kind == bindparam("of_kind")
_DUE = (_KIND, table.c.lease_token.is_(None), table.c.due_at <= _NOW)
_EXPIRED = (_KIND, table.c.lease_token.is_not(None), table.c.lease_expires_at <= bindparam("now", type_=Moment))
_FREE = {"lease_token": None, "lease_worker": None, "lease_expires_at": None}

# The first in the order of an index rather than EXISTS, for which PostgreSQL may read the table in the hope of a hit.
_FIRST_DUE = select(table.c.id).where(*_DUE).order_by(table.c.due_at, table.c.id).limit(1)
_FIRST_EXPIRED = select(table.c.id).where(*_EXPIRED).order_by(table.c.lease_expires_at).limit(1)
_ANY = select(func.coalesce(_FIRST_DUE.scalar_subquery(), _FIRST_EXPIRED.scalar_subquery()))
_PEEK = _FIRST_DUE.with_only_columns(*RESOURCE_COLUMNS)
_NEXT = _FIRST_DUE.with_only_columns(*RESOURCE_COLUMNS).with_for_update(skip_locked=True)
# Apart, because each has an index of its own and a query for both would have none.
_FREE_UNTIL = select(*RESOURCE_COLUMNS).where(*_DUE)
_HELD_UNTIL = select(*RESOURCE_COLUMNS).where(_KIND, table.c.lease_token.is_not(None), table.c.due_at <= _NOW)
_FREE_EXPIRED = (
    update(table)
    .where(table.c.id.in_(select(table.c.id).where(*_EXPIRED).with_for_update(skip_locked=True)))
    .values(**_FREE)
)


def _heads() -> Select[Any]:
    """The accounts of a line one after the other, each found from the one before, and the first of each."""
    c = table.alias("other").c
    in_line = (
        c.kind == bindparam("of_kind"),
        c.line == bindparam("of_line"),
        c.lease_token.is_(None),
        c.due_at > bindparam("after", type_=Moment),
    )
    accounts = select(c.account).where(*in_line).order_by(c.account).limit(1)
    # Any account is more than nothing; said here, because SQLite else takes the index of all that is due.
    anyone = accounts.where(c.account > "")
    found = select(anyone.scalar_subquery().label("account")).cte("found", recursive=True)
    following = accounts.where(c.account > found.c.account).correlate(found)
    found = found.union_all(select(following.scalar_subquery()).where(found.c.account.is_not(None)))
    first = select(c.id).where(*in_line, c.account == found.c.account).order_by(c.due_at, c.id).limit(1)
    columns = (first.with_only_columns(column).correlate(found).scalar_subquery() for column in (c.id, c.due_at))
    return select(found.c.account, *columns).where(found.c.account.is_not(None))


_HEADS = _heads()
_WAITING = (
    select(table.c.id, table.c.due_at)
    .where(
        _KIND,
        table.c.line == bindparam("of_line"),
        table.c.account == bindparam("of_account"),
        table.c.lease_token.is_(None),
        table.c.due_at > bindparam("after", type_=Moment),
    )
    .order_by(table.c.due_at, table.c.id)
    .limit(bindparam("at_most"))
)


def has_work(connection: Connection, kind: str, *, now: datetime, until: datetime) -> bool:
    """Whether a claim could succeed; asked first, so that an idle worker takes no write lock."""
    return connection.execute(_ANY, {"of_kind": kind, "moment": until, "now": now}).scalar_one() is not None


def first_due(connection: Connection, kind: str, *, now: datetime) -> Resource | None:
    found = connection.execute(_PEEK, {"of_kind": kind, "moment": now}).one_or_none()
    return resources.resource_of(found) if found is not None else None


def heads(connection: Connection, kind: str, lines: Sequence[str], *, after: datetime) -> Sequence[Waiting]:
    return [
        Waiting(row[1], row[0], line, row[2])
        for line in lines
        for row in connection.execute(_HEADS, {"of_kind": kind, "of_line": line, "after": after})
    ]


def waiting(
    connection: Connection, kind: str, line: str, *, accounts: Sequence[str], after: datetime, limit: int
) -> Sequence[Waiting]:
    asked = {"of_kind": kind, "of_line": line, "after": after, "at_most": limit}
    return [
        Waiting(row[0], account, line, row[1])
        for account in accounts
        for row in connection.execute(_WAITING, asked | {"of_account": account})
    ]


def count_due(
    connection: Connection,
    kind: str,
    *,
    after: datetime,
    before: datetime,
    lines: Sequence[str] | None,
    account: str | None,
) -> int:
    c = table.c
    wanted = [c.kind == kind, c.lease_token.is_(None), c.due_at > after, c.due_at < before]
    if lines is not None:
        wanted.append(c.line.in_(lines))
    if account is not None:
        wanted.append(c.account == account)
    return int(connection.execute(select(func.count()).where(*wanted)).scalar_one())


def due_until(connection: Connection, kind: str, moment: datetime) -> Sequence[Resource]:
    asked = {"of_kind": kind, "moment": moment}
    rows = [row for each in (_FREE_UNTIL, _HELD_UNTIL) for row in connection.execute(each, asked)]
    return sorted(map(resources.resource_of, rows), key=lambda found: (found.created_at, found.id))


def claim_next(
    connection: Connection,
    kind: str,
    *,
    worker: str,
    lease: timedelta,
    now: datetime,
    only: ResourceId | None,
    until: datetime,
) -> Claim | None:
    # A lost lease is cleared once instead of being stepped over by every claim.
    connection.execute(_FREE_EXPIRED, {"of_kind": kind, "now": now})
    wanted = _NEXT if only is None else _NEXT.where(table.c.id == only)
    found = connection.execute(wanted, {"of_kind": kind, "moment": until}).one_or_none()
    if found is None:
        return None
    claim = Claim(resources.resource_of(found), secrets.token_hex(16), now + lease)
    taken = {"lease_token": claim.token, "lease_worker": worker, "lease_expires_at": claim.expires_at}
    connection.execute(update(table).where(table.c.id == claim.resource.id).values(**taken))
    return claim


def renew(connection: Connection, claim: Claim, *, lease: timedelta, now: datetime) -> Claim | None:
    expiry = select(table.c.lease_expires_at).where(*_held(claim, now)).with_for_update()
    expires_at = connection.execute(expiry).scalar_one_or_none()
    if expires_at is None:
        return None
    later = max(expires_at, now + lease)
    connection.execute(update(table).where(table.c.id == claim.resource.id).values(lease_expires_at=later))
    return replace(claim, resource=resources.load_by_id(connection, claim.resource.id), expires_at=later)


def apply(
    connection: Connection,
    claim: Claim,
    change: Change,
    *,
    now: datetime,
    new_events: Sequence[NewEvent],
    release: bool,
) -> Claim | None:
    values = resources.changed_values(change, now) | {"revision": table.c.revision + 1}
    if release:
        values |= {"due_at": change.due_at, **_FREE}
    unmoved = table.c.revision == claim.resource.revision
    if connection.execute(update(table).where(*_held(claim, now), unmoved).values(**values)).rowcount == 0:
        return None
    applied = replace(claim, resource=resources.load_by_id(connection, claim.resource.id))
    counting.add(connection, claim.resource.key.account, change.counts)
    users.add_keys(connection, change.keys)
    events.append(connection, applied.resource, new_events, now=now)
    return applied


def _held(claim: Claim, now: datetime) -> tuple[ColumnElement[bool], ...]:
    c = table.c
    return (c.id == claim.resource.id, c.lease_token == claim.token, c.lease_expires_at > now)
