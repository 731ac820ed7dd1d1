"""Which nodes of the lineage a caller can see: those of the own account, and as an administrator those of all."""

from trainyard.foundation.errors import NotFound
from trainyard.server.lineage.nodes import LineageNode, load_node, parse_node_arn
from trainyard.server.records.contract import Resource, ResourceKey
from trainyard.server.services.contract import Call
from trainyard.wire.fault import Fault


def load_by_arn(call: Call, arn: str, kind: str) -> Resource:
    """Load the record behind an ARN. NotFound if it does not exist or the caller cannot see it."""
    key = parse_node_arn(arn)
    require_visible(call, key.account, kind, arn)
    return call.yard.records.load(ResourceKey(key.account, kind, key.name))


def load_visible_node(call: Call, arn: str) -> LineageNode:
    """Load the node of an ARN; the fault of AWS if it does not exist or the caller cannot see it."""
    try:
        require_visible(call, parse_node_arn(arn).account, "lineage entity", arn)
        return load_node(call.yard.records, arn)
    except NotFound as error:
        raise Fault("ResourceNotFound", f"Lineage entity '{arn}' does not exist.") from error


def require_visible(call: Call, account: str, kind: str, arn: str) -> None:
    if call.caller.scope not in (None, account):
        raise NotFound(kind, arn)
