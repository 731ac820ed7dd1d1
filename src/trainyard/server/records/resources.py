"""Resources: create, load, change if the revision matches, and delete with all children."""

import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import CTE, Connection, bindparam, delete, func, insert, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.server.records import arn_tags, counters, events, users, value_index
from trainyard.server.records.contract import Change, Draft, NewEvent, QueueState, Resource, ResourceId, ResourceKey
from trainyard.server.records.database import breaks_foreign_key
from trainyard.server.records.schema import RESOURCE_COLUMNS
from trainyard.server.records.schema import resources as table
from trainyard.server.records.schema import tags as tag_table

# SQLite accepts 32,766 parameters in a statement.
_LOADED_AT_ONCE = 1000
_INSERT = insert(table)
_LOAD = select(*RESOURCE_COLUMNS).where(
    table.c.account == bindparam("account"), table.c.kind == bindparam("kind"), table.c.name == bindparam("name")
)
_LOAD_BY_ID = select(*RESOURCE_COLUMNS).where(table.c.id == bindparam("id"))
_UPDATE = update(table).where(table.c.id == bindparam("row"), table.c.revision == bindparam("expected"))


def _family() -> CTE:
    """Select a resource and all its descendants."""
    c = table.alias("child").c
    root = select(table.c.id, table.c.account, table.c.arn).where(table.c.id == bindparam("row"))
    family = root.cte("family", recursive=True)
    return family.union_all(select(c.id, c.account, c.arn).where(c.parent == family.c.id))


_FAMILY = _family()
_GUARD = select(table.c.id).where(table.c.id == bindparam("row"), table.c.revision == bindparam("expected"))
_GUARD = _GUARD.with_for_update()
_LOCK_FAMILY = select(func.count()).select_from(
    select(table.c.id).where(table.c.id.in_(select(_FAMILY.c.id))).with_for_update().subquery()
)
_DELETE_TAGS = delete(tag_table).where(
    tuple_(tag_table.c.account, tag_table.c.arn).in_(
        select(_FAMILY.c.account, _FAMILY.c.arn).where(_FAMILY.c.arn != "")
    )
)
# The foreign key deletes the children.
_DELETE = delete(table).where(table.c.id == bindparam("row"))


def create(
    connection: Connection, draft: Draft, *, now: datetime, event: NewEvent | None, limits: Mapping[str, int] | None
) -> Resource:
    assert draft.arn or not draft.tags, "tags are stored under an ARN, and the draft has none"
    key = draft.key
    resource = Resource(new_id(now), key, draft.region, draft.status, now, now, 1, dict(draft.body), draft.parent)
    if draft.parent is not None:
        _require_parent(connection, draft.parent, account=key.account)
    try:
        connection.execute(_INSERT, _row(resource, draft))
    except IntegrityError as error:
        # The parent may have been deleted since the check above.
        if draft.parent is not None and breaks_foreign_key(error):
            raise NotFound("parent resource", draft.parent) from error
        raise AlreadyExists(key.kind, key.name) from error
    arn_tags.put(connection, key.account, draft.arn, draft.tags)
    value_index.add(connection, resource, draft.values)
    counters.add(connection, key.account, draft.counts, limits=limits)
    events.append(connection, resource, [event] if event else [], now=now)
    return resource


def load(connection: Connection, key: ResourceKey) -> Resource:
    found = connection.execute(_LOAD, {"account": key.account, "kind": key.kind, "name": key.name}).one_or_none()
    if found is None:
        raise NotFound(key.kind, key.name)
    return resource_of(found)


def load_by_id(connection: Connection, id: ResourceId) -> Resource:  # noqa: A002 - the domain's word
    found = connection.execute(_LOAD_BY_ID, {"id": id}).one_or_none()
    if found is None:
        raise NotFound("resource", id)
    return resource_of(found)


def load_many(connection: Connection, ids: Sequence[ResourceId]) -> Sequence[Resource]:
    found: list[Resource] = []
    for first in range(0, len(ids), _LOADED_AT_ONCE):
        wanted = table.c.id.in_(ids[first : first + _LOADED_AT_ONCE])
        found += [resource_of(row) for row in connection.execute(select(*RESOURCE_COLUMNS).where(wanted))]
    return found


def load_named(connection: Connection, account: str, kind: str, names: Sequence[str]) -> Sequence[Resource]:
    found: list[Resource] = []
    of_kind = select(*RESOURCE_COLUMNS).where(table.c.account == account, table.c.kind == kind)
    for first in range(0, len(names), _LOADED_AT_ONCE):
        wanted = of_kind.where(table.c.name.in_(names[first : first + _LOADED_AT_ONCE]))
        found += [resource_of(row) for row in connection.execute(wanted)]
    return found


def apply(
    connection: Connection, resource: Resource, change: Change, *, now: datetime, new_events: Sequence[NewEvent]
) -> Resource | None:
    values = changed_values(change, now) | {"revision": resource.revision + 1}
    guard = {"row": resource.id, "expected": resource.revision}
    if connection.execute(_UPDATE.values(**values), guard).rowcount == 0:
        return None
    value_index.put(connection, resource, change.values)
    counters.add(connection, resource.key.account, change.counts)
    users.add_keys(connection, change.keys)
    events.append(connection, resource, new_events, now=now)
    return replace(
        resource,
        status=resource.status if change.status is None else change.status,
        body=resource.body if change.body is None else dict(change.body),
        modified_at=resource.modified_at if change.is_quiet else now,
        revision=resource.revision + 1,
    )


def changed_values(change: Change, now: datetime) -> dict[str, Any]:
    """Return the columns that a change writes."""
    values: dict[str, Any] = {
        "status": change.status,
        "body": change.body,
        "due_at": change.due_at,
        "state": change.state,
        "modified_at": None if change.is_quiet else now,
    }
    written = {name: value for name, value in values.items() if value is not None}
    return written | {"due_at": None, "state": QueueState.UNQUEUED} if change.is_settling else written


def remove(connection: Connection, resource: Resource, *, now: datetime, event: NewEvent | None) -> bool:
    if connection.execute(_GUARD, {"row": resource.id, "expected": resource.revision}).one_or_none() is None:
        return False
    # Lock first, so that nobody adds a child to a resource whose tags are already deleted.
    for statement in (_LOCK_FAMILY, _DELETE_TAGS, _DELETE):
        connection.execute(statement, {"row": resource.id})
    events.append(connection, resource, [event] if event else [], now=now)
    return True


def resource_of(row: Sequence[Any]) -> Resource:
    (id_, account, kind, name, region, status, created_at, modified_at, revision, body, parent) = row
    key = ResourceKey(account, kind, name)
    return Resource(id_, key, region, status, created_at, modified_at, revision, body, parent)


def new_id(now: datetime) -> ResourceId:
    """Return a unique version 7 UUID. Later ids sort after earlier ones, to a quarter of a microsecond."""
    millis, micros = divmod(to_micros(now), 1000)
    bits = (millis & (1 << 48) - 1) << 80 | 7 << 76 | (micros * 4096 // 1000) << 64 | 2 << 62 | secrets.randbits(62)
    return ResourceId(str(uuid.UUID(int=bits)))


def _require_parent(connection: Connection, parent: ResourceId, *, account: str) -> None:
    """Require that the parent belongs to the same account, so that no delete reaches another account's resources."""
    mine = select(table.c.id).where(table.c.id == parent, table.c.account == account)
    if connection.execute(mine).one_or_none() is None:
        raise NotFound("parent resource", parent)


def _row(resource: Resource, draft: Draft) -> dict[str, Any]:
    return {
        "id": resource.id,
        "account": resource.key.account,
        "kind": resource.key.kind,
        "name": resource.key.name,
        "region": resource.region,
        "status": resource.status,
        "created_at": resource.created_at,
        "modified_at": resource.modified_at,
        "revision": resource.revision,
        "body": resource.body,
        "parent": resource.parent,
        "arn": draft.arn,
        "due_at": draft.due_at,
        "state": QueueState.UNQUEUED if draft.due_at is None else draft.state,
        "queue": draft.queue,
        "priority": int(draft.priority),
    }
