"""How one thing that begins to use another is noticed by who is deleting the other."""

from trainyard.foundation.errors import NotFound
from trainyard.server.records.contract import Change, Resource
from trainyard.server.services.contract import Call


def touch(call: Call, used: Resource) -> bool:
    """Raise the revision of what is used, so that who is deleting it looks again; False when it is gone already."""
    records = call.yard.records
    while not records.apply(used, Change(), now=call.now):
        try:
            used = records.load_by_id(used.id)
        except NotFound:
            return False
    return True
