"""BatchGetMetrics."""

import math
import re
from collections.abc import Callable, Iterable, Mapping

from trainyard.formats.run_metrics import RunMetrics, RunPoint
from trainyard.foundation.clock import from_micros
from trainyard.foundation.errors import InvalidRequest, NotFound, TrainyardError
from trainyard.foundation.experiments import MetricStatistics, summarize
from trainyard.server.experiments.storage import COMPONENT, entity_key
from trainyard.server.services.contract import Call, Operations, Shape

# More points are cut off, and the status says so.
MAX_POINTS = 10_000

_ARN = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]*:(?P<account>[0-9]{12}):(?P<type>[a-z-]+)/(?P<name>.+)")
_PERIOD_S = {"OneMinute": 60, "FiveMinute": 300, "OneHour": 3600}
_BY_STEP = "IterationNumber"

_STATISTICS: Mapping[str, Callable[[MetricStatistics], float | None]] = {
    "Min": lambda found: found.minimum,
    "Max": lambda found: found.maximum,
    "Avg": lambda found: found.mean,
    "Count": lambda found: float(found.count),
    "StdDev": lambda found: found.deviation,
    "Last": lambda found: found.last if math.isfinite(found.last) else None,
}


def batch_get_metrics(call: Call, shape: Shape) -> Shape:
    """Return a statistic of each metric by period of time or by step. A query that fails does not affect the others."""
    return {"MetricQueryResults": [_result(call, query) for query in shape["MetricQueries"]]}


OPERATIONS: Operations = {"BatchGetMetrics": batch_get_metrics}


def _result(call: Call, query: Shape) -> Shape:
    try:
        found = _evaluate(call, query)
    except TrainyardError as error:
        return {"Status": "ValidationError", "Message": error.message, "XAxisValues": [], "MetricValues": []}
    positions = sorted(found)
    is_complete = len(positions) <= MAX_POINTS
    positions = positions[:MAX_POINTS]
    return {
        "Status": "Complete" if is_complete else "Truncated",
        "XAxisValues": positions,
        "MetricValues": [found[position] for position in positions],
    }


def _evaluate(call: Call, query: Shape) -> Mapping[int, float]:
    """Return the statistic at each position on the x axis: seconds since the epoch, or a step."""
    position_of = _position(query)
    points = (point for point in _metrics(call, query["ResourceArn"]).read_all() if point.name == query["MetricName"])
    groups: dict[int, list[RunPoint]] = {}
    for point in points:
        position = position_of(point)
        if position is not None and query.get("Start", position) <= position <= query.get("End", position):
            groups.setdefault(position, []).append(point)
    statistic = _STATISTICS[query["MetricStat"]]
    values = {position: statistic(_summary(group)) for position, group in groups.items()}
    return {position: value for position, value in values.items() if value is not None}


def _position(query: Shape) -> Callable[[RunPoint], int | None]:
    period, axis = query["Period"], query["XAxisType"]
    if (period == _BY_STEP) is not (axis == _BY_STEP):
        raise InvalidRequest(f"The Period {period} does not fit the XAxisType {axis}.")
    if axis == _BY_STEP:
        return lambda point: point.step
    length_s = _PERIOD_S[period]
    return lambda point: point.micros // 1_000_000 // length_s * length_s


def _summary(points: Iterable[RunPoint]) -> MetricStatistics:
    summary = summarize((point.value, from_micros(point.micros)) for point in points)
    assert summary is not None, "a group has at least one point"
    return summary


def _metrics(call: Call, arn: str) -> RunMetrics:
    named = _ARN.fullmatch(arn)
    if named is None or named["type"] != COMPONENT:
        raise InvalidRequest(f'"{arn}" is not the ARN of a trial component.')
    if call.caller.scope not in (None, named["account"]):
        raise NotFound("trial component", named["name"])
    component = call.yard.records.load(entity_key(named["account"], COMPONENT, named["name"]))
    return RunMetrics(call.yard.metrics / component.id)
