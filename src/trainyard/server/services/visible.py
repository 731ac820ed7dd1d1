"""Which resource a caller means by a name."""

from trainyard.foundation.errors import Conflict, NotFound
from trainyard.server.records.contract import Query, Resource, ResourceKey
from trainyard.server.services.contract import Call


def load_visible(call: Call, kind: str, name: str) -> Resource:
    """The caller's own resource of that name; for an administrator who has none, that of another account.

    NotFound where there is none that the caller may see; Conflict where several others have one of that name.
    """
    try:
        return call.yard.records.load(ResourceKey(call.account, kind, name))
    except NotFound:
        if not call.caller.is_admin:
            raise
    found = call.yard.records.find(Query(kind, name=name, limit=10)).resources
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(kind, name)
    owners = ", ".join(resource.key.account for resource in found)
    raise Conflict(kind, name, f"is in several accounts ({owners}); call as the one that you mean")
