"""Leases: one worker at a time holds a due resource."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, bindparam, func, select, update

from trainyard.server.records import counters, events, resources, users, value_index
from trainyard.server.records.contract import Change, Claim, NewEvent, QueueState, Resource, ResourceId
from trainyard.server.records.schema import RESOURCE_COLUMNS, Moment
from trainyard.server.records.schema import resources as table

_NOW = bindparam("now", type_=Moment)
_KIND = table.c.kind == bindparam("of_kind")
_STATE = table.c.state == bindparam("in_state")
_DUE = (_KIND, _STATE, table.c.lease_token.is_(None), table.c.due_at <= _NOW)
_EXPIRED = (_KIND, table.c.lease_token.is_not(None), table.c.lease_expires_at <= _NOW)
_FREE = {"lease_token": None, "lease_worker": None, "lease_expires_at": None}

# Reads the first row in index order. For EXISTS, PostgreSQL may scan the table until it finds a row.
_FIRST_DUE = select(table.c.id).where(*_DUE).order_by(table.c.due_at, table.c.id).limit(1)
_FIRST_EXPIRED = select(table.c.id).where(*_EXPIRED).order_by(table.c.lease_expires_at).limit(1)
_ANY = select(func.coalesce(_FIRST_DUE.scalar_subquery(), _FIRST_EXPIRED.scalar_subquery()))
_PEEK = _FIRST_DUE.with_only_columns(*RESOURCE_COLUMNS)
_NEXT = _FIRST_DUE.with_only_columns(*RESOURCE_COLUMNS).with_for_update(skip_locked=True)
# Two queries, because each has its own index and one query for both would use neither.
_IN_STATE = select(*RESOURCE_COLUMNS).where(_KIND, _STATE, table.c.due_at.is_not(None))
_IN_STATE_FREE = _IN_STATE.where(table.c.lease_token.is_(None))
_IN_STATE_HELD = _IN_STATE.where(table.c.lease_token.is_not(None))
_FREE_EXPIRED = (
    update(table)
    .where(table.c.id.in_(select(table.c.id).where(*_EXPIRED).with_for_update(skip_locked=True)))
    .values(**_FREE)
)


def has_work(connection: Connection, kind: str, *, now: datetime, state: QueueState) -> bool:
    """Whether a claim could succeed. Checked first, so that an idle worker takes no write lock."""
    return connection.execute(_ANY, {"of_kind": kind, "in_state": state, "now": now}).scalar_one() is not None


def find_first_due(connection: Connection, kind: str, *, now: datetime, state: QueueState) -> Resource | None:
    found = connection.execute(_PEEK, {"of_kind": kind, "in_state": state, "now": now}).one_or_none()
    return resources.resource_of(found) if found is not None else None


def find_in_state(connection: Connection, kind: str, state: QueueState) -> Sequence[Resource]:
    asked = {"of_kind": kind, "in_state": state}
    rows = [row for each in (_IN_STATE_FREE, _IN_STATE_HELD) for row in connection.execute(each, asked)]
    return sorted(map(resources.resource_of, rows), key=lambda found: (found.created_at, found.id))


def claim_next(
    connection: Connection,
    kind: str,
    *,
    worker: str,
    lease: timedelta,
    now: datetime,
    only: ResourceId | None,
    state: QueueState,
) -> Claim | None:
    # Clear expired leases once, so that later claims do not have to skip them.
    connection.execute(_FREE_EXPIRED, {"of_kind": kind, "now": now})
    wanted = _NEXT if only is None else _NEXT.where(table.c.id == only)
    found = connection.execute(wanted, {"of_kind": kind, "in_state": state, "now": now}).one_or_none()
    if found is None:
        return None
    claim = Claim(resources.resource_of(found), secrets.token_hex(16), now + lease)
    lease_values = {"lease_token": claim.token, "lease_worker": worker, "lease_expires_at": claim.expires_at}
    connection.execute(update(table).where(table.c.id == claim.resource.id).values(**lease_values))
    return claim


def renew(connection: Connection, claim: Claim, *, lease: timedelta, now: datetime) -> Claim | None:
    expiry = select(table.c.lease_expires_at).where(*_holds(claim, now)).with_for_update()
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
        due_at = values.get("due_at")
        values |= {"due_at": due_at, **_FREE}
        if due_at is None:
            values["state"] = QueueState.UNQUEUED
    is_unchanged = table.c.revision == claim.resource.revision
    if connection.execute(update(table).where(*_holds(claim, now), is_unchanged).values(**values)).rowcount == 0:
        return None
    applied = replace(claim, resource=resources.load_by_id(connection, claim.resource.id))
    value_index.put(connection, applied.resource, change.values)
    counters.add(connection, claim.resource.key.account, change.counts)
    users.add_keys(connection, change.keys)
    events.append(connection, applied.resource, new_events, now=now)
    return applied


def _holds(claim: Claim, now: datetime) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions under which a claim still holds its resource."""
    c = table.c
    return (c.id == claim.resource.id, c.lease_token == claim.token, c.lease_expires_at > now)
