"""AddAssociation, DeleteAssociation and ListAssociations."""

from collections.abc import Mapping

from trainyard.foundation.errors import AlreadyExists, InvalidRequest
from trainyard.server.lineage.nodes import LineageNode, load_nodes, parse_node_arn
from trainyard.server.records.contract import Association, AssociationOrder, AssociationQuery
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.lineage.node_access import load_visible_node
from trainyard.wire.fault import Fault

# The default of AWS.
PAGE = 10
DEFAULT_TYPE = "AssociatedWith"

_ORDERS = {
    "CreationTime": AssociationOrder.CREATED,
    "SourceArn": AssociationOrder.SOURCE,
    "DestinationArn": AssociationOrder.DESTINATION,
    "SourceType": AssociationOrder.SOURCE_TYPE,
    "DestinationType": AssociationOrder.DESTINATION_TYPE,
}


def add_association(call: Call, shape: Shape) -> Shape:
    source, destination = (load_visible_node(call, shape[member]) for member in ("SourceArn", "DestinationArn"))
    if source.is_experiment and destination.is_experiment:
        raise InvalidRequest("Two trial components cannot be associated; associate them through an artifact.")
    account = parse_node_arn(source.arn).account
    if parse_node_arn(destination.arn).account != account:
        raise InvalidRequest(f'"{source.arn}" and "{destination.arn}" belong to different accounts.')
    kind = shape.get("AssociationType", DEFAULT_TYPE)
    association = Association(account, source.arn, destination.arn, kind, call.now, source.type, destination.type)
    try:
        call.yard.records.associate(association)
    except AlreadyExists as error:
        raise Fault(
            "ValidationException", f"Association from {source.arn} to {destination.arn} already exists."
        ) from error
    return {"SourceArn": source.arn, "DestinationArn": destination.arn}


def delete_association(call: Call, shape: Shape) -> Shape:
    source, destination = shape["SourceArn"], shape["DestinationArn"]
    account = parse_node_arn(source).account
    is_visible = call.caller.scope in (None, account)
    if not is_visible or not call.yard.records.dissociate(account, source, destination):
        raise Fault("ResourceNotFound", f"Association from {source} to {destination} does not exist.")
    return {"SourceArn": source, "DestinationArn": destination}


def list_associations(call: Call, shape: Shape) -> Shape:
    """List associations by their ends, types and times. Without an end, list those of the caller's account."""
    page = call.yard.records.find_associations(_query(call, shape))
    arns = {end for each in page.associations for end in (each.source, each.destination)}
    nodes = load_nodes(call.yard.records, sorted(arns))
    listed = [_summary(each, nodes) for each in page.associations]
    return {"AssociationSummaries": listed} | ({"NextToken": page.next_after} if page.next_after else {})


OPERATIONS: Operations = {
    "AddAssociation": add_association,
    "DeleteAssociation": delete_association,
    "ListAssociations": list_associations,
}


def _query(call: Call, shape: Shape) -> AssociationQuery:
    source, destination = shape.get("SourceArn", ""), shape.get("DestinationArn", "")
    accounts = {parse_node_arn(arn).account for arn in (source, destination) if arn} or {call.account}
    # Nothing is associated across accounts, and other accounts are not visible: such a list is empty.
    account = accounts.pop() if len(accounts) == 1 else ""
    return AssociationQuery(
        account if call.caller.scope in (None, account) else "",
        source=source,
        destination=destination,
        kind=shape.get("AssociationType", ""),
        source_type=shape.get("SourceType", ""),
        destination_type=shape.get("DestinationType", ""),
        created_after=shape.get("CreatedAfter"),
        created_before=shape.get("CreatedBefore"),
        sort_by=_ORDERS[shape.get("SortBy", "CreationTime")],
        descending=shape.get("SortOrder", "Descending") == "Descending",
        limit=shape.get("MaxResults", PAGE),
        after=shape.get("NextToken", ""),
    )


def _summary(each: Association, nodes: Mapping[str, LineageNode]) -> Shape:
    return {
        "SourceArn": each.source,
        "DestinationArn": each.destination,
        "SourceType": each.source_type,
        "DestinationType": each.destination_type,
        "AssociationType": each.kind,
        "SourceName": _name(nodes.get(each.source)),
        "DestinationName": _name(nodes.get(each.destination)),
        "CreationTime": each.created_at,
    }


def _name(node: LineageNode | None) -> str | None:
    return node.name or None if node else None
