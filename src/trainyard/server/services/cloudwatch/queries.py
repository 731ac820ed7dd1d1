"""GetMetricData: the statistics of many metrics in one call, in pages."""

import base64
import json
import re
from collections.abc import Sequence
from datetime import datetime
from itertools import chain

from trainyard.formats.metrics import aggregate, is_percentile, is_statistic
from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.cloudwatch.series import (
    MICROS,
    aligned_micros,
    parse_metric,
    points_by_unit,
    require_period,
)
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.wire.fault import Fault

MAX_QUERIES = 500
MAX_DATAPOINTS = 100_800

_ID = re.compile(r"[a-z][a-zA-Z0-9_]*")

Values = Sequence[tuple[datetime, float]]


def get_metric_data(call: Call, shape: Shape) -> Shape:
    _require_request(shape)
    queries = [query for query in shape["MetricDataQueries"] if query.get("ReturnData", True)]
    first, passed = _parse_token(shape["NextToken"]) if shape.get("NextToken") else (0, None)
    room = shape.get("MaxDatapoints", MAX_DATAPOINTS)
    answer: Shape = {"MetricDataResults": [], "Messages": []}
    for number, query in enumerate(queries[first:], first):
        if not room:
            return answer | {"NextToken": _token(number, None)}
        values = _values(call, query, shape, passed if number == first else None)
        label = _label(query, shape["MetricDataQueries"])
        answer["MetricDataResults"].append(_result(query, label, values=values[:room], is_complete=len(values) <= room))
        if len(values) > room:
            return answer | {"NextToken": _token(number, values[room - 1][0])}
        room -= len(values)
    return answer


OPERATIONS: Operations = {"GetMetricData": get_metric_data}


def _require_request(shape: Shape) -> None:
    queries = shape["MetricDataQueries"]
    if shape["StartTime"] >= shape["EndTime"]:
        raise _invalid("The parameter StartTime must be less than the parameter EndTime.")
    if not 1 <= len(queries) <= MAX_QUERIES:
        raise _invalid(f"The collection MetricDataQueries must have 1 to {MAX_QUERIES} members.")
    if not 1 <= shape.get("MaxDatapoints", 1) <= MAX_DATAPOINTS:
        raise _invalid(f"The parameter MaxDatapoints must be 1 to {MAX_DATAPOINTS}.")
    if len({query["Id"] for query in queries}) < len(queries):
        raise _invalid("The values for parameter Id in MetricDataQueries are not unique.")
    for query in queries:
        _require_query(query)


def _require_query(query: Shape) -> None:
    if not _ID.fullmatch(query["Id"]):
        raise _invalid(
            f'Invalid Id "{query["Id"]}": use letters, digits and underscores, and begin with a lower-case letter.'
        )
    if "Expression" in query:
        raise _invalid(
            f'The query "{query["Id"]}" has an Expression; Trainyard does not serve metric math, use MetricStat.'
        )
    if "MetricStat" not in query:
        raise _invalid(f'The query "{query["Id"]}" has no MetricStat.')
    stat = query["MetricStat"]
    if not is_statistic(stat["Stat"]):
        raise _invalid(
            f'The statistic "{stat["Stat"]}" is not served; '
            "use Average, Sum, Minimum, Maximum, SampleCount or p0 to p100."
        )
    if missing := {"Namespace", "MetricName"} - stat["Metric"].keys():
        raise _invalid(f'The metric of "{query["Id"]}" has no {" and no ".join(sorted(missing))}.')
    try:
        require_period(stat["Period"])
    except InvalidRequest as error:
        raise _invalid(error.message) from error


def _values(call: Call, query: Shape, shape: Shape, passed: datetime | None) -> Values:
    """Return the values of a query in the requested order, starting after the time `passed`."""
    stat = query["MetricStat"]
    named = stat["Metric"]
    metric = parse_metric(named["Namespace"], named["MetricName"], named.get("Dimensions", ()))
    start = aligned_micros(shape["StartTime"], stat["Period"], now=call.now)
    end = to_micros(shape["EndTime"])
    by_unit = points_by_unit(call, metric, account=query.get("AccountId"))
    point_lists = [
        file.read(start, end) for unit, files in by_unit.items() if unit == stat.get("Unit", unit) for file in files
    ]
    is_ascending = shape.get("ScanBy") == "TimestampAscending"
    period, needs_values = stat["Period"] * MICROS, is_percentile(stat["Stat"])
    values = []
    for bucket in aggregate(chain.from_iterable(point_lists), start, period_micros=period, keep_values=needs_values):
        moment, value = from_micros(bucket.start_micros), bucket.statistic(stat["Stat"])
        is_new = passed is None or (moment > passed if is_ascending else moment < passed)
        if value is not None and is_new:
            values.append((moment, value))
    return values if is_ascending else values[::-1]


def _label(query: Shape, queries: Sequence[Shape]) -> str:
    """Return the label of a query: its own, or the metric's name and what tells it from other queries of the metric."""
    own: Shape = query["MetricStat"]
    stats = [each["MetricStat"] for each in queries if each["MetricStat"]["Metric"] == own["Metric"]]
    differing = [str(own[name]) for name in ("Stat", "Period") if len({stat[name] for stat in stats}) > 1]
    return str(query.get("Label", " ".join([own["Metric"]["MetricName"], *differing])))


def _result(query: Shape, label: str, *, values: Values, is_complete: bool) -> Shape:
    return {
        "Id": query["Id"],
        "Label": label,
        "Timestamps": [moment for moment, _ in values],
        "Values": [value for _, value in values],
        "StatusCode": "Complete" if is_complete else "PartialData",
    }


def _token(number: int, passed: datetime | None) -> str:
    position = [number, None if passed is None else to_micros(passed)]
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def _parse_token(token: str) -> tuple[int, datetime | None]:
    """Return the number of the query to continue with, and the time of the last value returned for it."""
    try:
        match json.loads(base64.b64decode(token, altchars=b"-_", validate=True)):
            case [int(number), None] if number >= 0:
                return number, None
            case [int(number), int(passed)] if number >= 0:
                return number, from_micros(passed)
        raise ValueError("not a token of this operation")
    except (ValueError, OverflowError, RecursionError) as error:
        raise Fault("InvalidNextToken", "The specified NextToken is invalid.") from error


def _invalid(message: str) -> Fault:
    return Fault("ValidationError", message)
