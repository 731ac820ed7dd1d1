"""GetMetricStatistics: the statistics of one metric by period."""

from collections.abc import Sequence
from itertools import chain

from trainyard.formats.metrics import PeriodStatistics, aggregate, is_percentile
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

MAX_DATAPOINTS = 1440


def get_metric_statistics(call: Call, shape: Shape) -> Shape:
    _require_request(shape)
    metric = parse_metric(shape["Namespace"], shape["MetricName"], shape.get("Dimensions", ()))
    start = aligned_micros(shape["StartTime"], shape["Period"], now=call.now)
    end, period = to_micros(shape["EndTime"]), shape["Period"] * MICROS
    datapoints = []
    for unit, files in points_by_unit(call, metric).items():
        if unit == shape.get("Unit", unit):
            points = chain.from_iterable(file.read(start, end) for file in files)
            buckets = aggregate(points, start, period_micros=period, keep_values="ExtendedStatistics" in shape)
            datapoints += [{"Unit": unit} | point for bucket in buckets if (point := _datapoint(bucket, shape))]
    return {"Label": metric.name, "Datapoints": datapoints}


OPERATIONS: Operations = {"GetMetricStatistics": get_metric_statistics}


def _require_request(shape: Shape) -> None:
    require_period(shape["Period"])
    if shape["StartTime"] >= shape["EndTime"]:
        raise InvalidRequest("The parameter StartTime must be less than the parameter EndTime.")
    if ("Statistics" in shape) == ("ExtendedStatistics" in shape):
        raise Fault("InvalidParameterCombination", "Give either Statistics or ExtendedStatistics, not both.")
    unserved = [name for name in shape.get("ExtendedStatistics", ()) if not is_percentile(name)]
    if unserved:
        raise InvalidRequest(f'The extended statistic "{unserved[0]}" is not served; use p0 to p100.')
    asked = (to_micros(shape["EndTime"]) - to_micros(shape["StartTime"])) // (shape["Period"] * MICROS)
    if asked > MAX_DATAPOINTS:
        raise Fault(
            "InvalidParameterCombination",
            f"You have requested up to {asked:,} datapoints, which exceeds the limit of {MAX_DATAPOINTS:,}. You may "
            "reduce the datapoints requested by increasing Period, or decreasing the time range.",
        )


def _datapoint(bucket: PeriodStatistics, shape: Shape) -> Shape | None:
    """Return the requested statistics of a period; None if it has none of them."""
    plain = _statistics(bucket, shape.get("Statistics", ()))
    extended = _statistics(bucket, shape.get("ExtendedStatistics", ()))
    if not plain and not extended:
        return None
    point: Shape = {"Timestamp": from_micros(bucket.start_micros), **plain}
    return point | ({"ExtendedStatistics": extended} if extended else {})


def _statistics(bucket: PeriodStatistics, names: Sequence[str]) -> dict[str, float]:
    values = {name: bucket.statistic(name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
