"""ListMetrics: metrics by namespace, name, dimensions and recent activity."""

from datetime import timedelta

from trainyard.foundation.clock import to_micros
from trainyard.server.metric_series import KIND, last_micros, metric_of, record_prefix
from trainyard.server.records.contract import Page, Query, Resource, SortBy
from trainyard.server.services.cloudwatch.series import metric_shape
from trainyard.server.services.contract import Call, Operations, Shape

PAGE = 500
# Metrics read for one answer, which may then be short and have a token.
MAX_SCANNED = 5000

RECENT = timedelta(hours=3)


def list_metrics(call: Call, shape: Shape) -> Shape:
    found: list[Resource] = []
    scanned = 0
    after: str | None = shape.get("NextToken", "")
    while after is not None and len(found) < PAGE and scanned < MAX_SCANNED:
        page = _page(call, shape, after=after, limit=PAGE - len(found))
        found += [resource for resource in page.resources if _is_match(call, resource, shape)]
        scanned += len(page.resources)
        after = page.next_after
    answer: Shape = {"Metrics": [metric_shape(metric_of(resource)) for resource in found]}
    if shape.get("IncludeLinkedAccounts"):
        answer["OwningAccounts"] = [resource.key.account for resource in found]
    return answer | ({"NextToken": after} if after else {})


OPERATIONS: Operations = {"ListMetrics": list_metrics}


def _page(call: Call, shape: Shape, *, after: str, limit: int) -> Page:
    namespace, name = shape.get("Namespace", ""), shape.get("MetricName", "")
    query = Query(
        KIND,
        account=call.caller.scope,
        name_prefix=record_prefix(namespace, name) if namespace else "",
        # In a record name, the metric's name stands between slashes, and no part contains one.
        name_contains=f"/{record_prefix(name)}" if name and not namespace else "",
        sort_by=SortBy.NAME,
        limit=limit,
        after=after,
    )
    return call.yard.records.find(query)


def _is_match(call: Call, resource: Resource, shape: Shape) -> bool:
    if shape.get("OwningAccount", resource.key.account) != resource.key.account:
        return False
    dimensions = dict(metric_of(resource).dimensions)
    if not all(_has(dimensions, wanted) for wanted in shape.get("Dimensions", ())):
        return False
    if shape.get("RecentlyActive") is None:
        return True
    last = last_micros(call.yard.metrics, resource)
    return last is not None and last >= to_micros(call.now - RECENT)


def _has(dimensions: dict[str, str], wanted: Shape) -> bool:
    name = wanted["Name"]
    return name in dimensions and wanted.get("Value", dimensions[name]) == dimensions[name]
