"""Find the resource that a caller means by a name."""

from trainyard.foundation.errors import Conflict, NotFound
from trainyard.server.records.contract import Query, Resource, ResourceKey
from trainyard.server.services.contract import Call


def load_visible(call: Call, kind: str, name: str) -> Resource:
    """Load the caller's own resource with this name; for an administrator who has none, another account's.

    Raises NotFound if the caller can see none, and Conflict if several other accounts have one with this name.
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
    raise Conflict(
        kind, name, f"exists in several accounts ({owners}); call with the credentials of the account that you mean"
    )
