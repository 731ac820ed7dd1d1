"""Guarded changes of IAM's records: load, work, apply, and again when another writer was first."""

from collections.abc import Callable, Mapping
from typing import Any

from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.server.records.contract import Change, Resource
from trainyard.server.services.contract import Call

# An attempt fails only when another writer succeeds, so this many failures in a row have some other cause.
_ATTEMPTS = 20


def change_body(call: Call, load: Callable[[], Resource], change: Callable[[Resource], Mapping[str, Any]]) -> Resource:
    """Store what `change` makes of the resource that `load` returns; return the changed resource."""
    for _ in range(_ATTEMPTS):
        resource = load()
        changed = call.yard.records.apply(resource, Change(body=change(resource)), now=call.now)
        if changed is not None:
            return changed
    raise _contention(resource)


def delete_unused(call: Call, load: Callable[[], Resource], *, require_unused: Callable[[Resource], None]) -> None:
    """Delete the resource that `load` returns, unless `require_unused` refuses.

    Whoever begins to use the resource touches it afterwards, so a use that begins during the check is noticed here.
    """
    for _ in range(_ATTEMPTS):
        resource = load()
        require_unused(resource)
        if call.yard.records.delete(resource, now=call.now):
            return
    raise _contention(resource)


def touch(call: Call, used: Resource) -> bool:
    """Raise the revision of a resource, so that a deletion in progress checks again; False if it is already gone."""
    records = call.yard.records
    while not records.apply(used, Change(), now=call.now):
        try:
            used = records.load_by_id(used.id)
        except NotFound:
            return False
    return True


def _contention(resource: Resource) -> Unavailable:
    kind = resource.key.kind.replace("-", " ")
    return Unavailable(f'The {kind} "{resource.key.name}" was changed by other requests at the same time; try again.')
