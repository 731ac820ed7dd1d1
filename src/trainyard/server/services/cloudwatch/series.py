"""What the reads of metrics share: parsing, visibility, periods."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from trainyard.formats.metrics import PointsFile
from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server.metric_series import KIND, MetricId, points_files
from trainyard.server.records.contract import Resource, ResourceKey
from trainyard.server.services.contract import Call, Shape
from trainyard.server.services.visibility import load_visible

MICROS = 1_000_000  # per second

# Periods below a minute, in seconds.
_HIGH_RESOLUTION = (1, 5, 10, 20, 30)


def parse_metric(namespace: str, name: str, dimensions: Iterable[Mapping[str, str]]) -> MetricId:
    return MetricId(namespace, name, tuple(sorted((each["Name"], each["Value"]) for each in dimensions)))


def metric_shape(metric: MetricId) -> Shape:
    dimensions = [{"Name": name, "Value": value} for name, value in metric.dimensions]
    return {"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions}


def points_by_unit(call: Call, metric: MetricId, *, account: str | None = None) -> dict[str, Sequence[PointsFile]]:
    """Return the points of a metric by unit; none if the caller cannot see the metric."""
    try:
        resource = _load_visible_metric(call, metric, account)
    except NotFound:
        return {}
    return points_files(call.yard.metrics, resource)


def require_period(period_s: int) -> None:
    if period_s not in _HIGH_RESOLUTION and period_s % 60:
        raise InvalidRequest(
            f"The value {period_s} for parameter Period is invalid; it must be 1, 5, 10, 20, 30 or a multiple of 60."
        )


def aligned_micros(start: datetime, period_s: int, *, now: datetime) -> int:
    """Return the start of the first period: the start of the range, rounded down as on AWS, more for older ranges."""
    micros = to_micros(start)
    return micros - micros % (_resolution_s(now - start, period_s) * MICROS)


def _load_visible_metric(call: Call, metric: MetricId, account: str | None) -> Resource:
    if account is None:
        return load_visible(call, KIND, metric.record_name)
    if account != call.account and not call.caller.is_admin:
        raise NotFound(KIND, metric.name)
    return call.yard.records.load(ResourceKey(account, KIND, metric.record_name))


def _resolution_s(age: timedelta, period_s: int) -> int:
    if period_s < 60:
        return period_s
    if age < timedelta(days=15):
        return 60
    return 300 if age <= timedelta(days=63) else 3600
