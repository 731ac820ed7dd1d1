"""PutMetricData. All data of a request is checked before any is written."""

import math
from collections.abc import Sequence
from datetime import timedelta

from trainyard.formats.metrics import RECORD_BYTES, Point
from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.metric_series import NO_UNIT, MetricId, ensure_metric, metric_draft, points_file
from trainyard.server.services.cloudwatch.series import parse_metric
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.wire.fault import Fault

MAX_DATA = 1000
MAX_VALUES = 150
MAX_MAGNITUDE = 2.0**360
MAX_AGE = timedelta(days=14)
MAX_AHEAD = timedelta(hours=2)

_VALUE_MEMBERS = ("Value", "Values", "StatisticValues")


def put_metric_data(call: Call, shape: Shape) -> Shape:
    _require_request(shape)
    batches: dict[tuple[MetricId, str], list[Point]] = {}
    for number, datum in enumerate(shape["MetricData"], 1):
        where = f"MetricData.member.{number}"
        metric = parse_metric(shape["Namespace"], datum["MetricName"], datum.get("Dimensions", ()))
        _require_metric(metric, datum, where)
        batch = batches.setdefault((metric, datum.get("Unit", NO_UNIT)), [])
        batch += _points(call, datum, where)
    for (metric, unit), points in batches.items():
        call.yard.require_space(call.yard.metrics, len(points) * RECORD_BYTES)
        draft = metric_draft(metric, call.account, call.region)
        record = ensure_metric(call.yard.records, draft, now=call.now)
        points_file(call.yard.metrics, record, unit).append(points)
    return {}


OPERATIONS: Operations = {"PutMetricData": put_metric_data}


def _require_request(shape: Shape) -> None:
    if shape["Namespace"].startswith("AWS/"):
        raise InvalidRequest(
            f'The prefix AWS/ of the namespace "{shape["Namespace"]}" is reserved; choose another namespace.'
        )
    _require_printable(shape["Namespace"], "Namespace")
    if shape.get("EntityMetricData"):
        raise InvalidRequest("EntityMetricData is not served; send the same data as MetricData.")
    if not shape.get("MetricData"):
        raise Fault("MissingParameter", "The parameter MetricData is required.")
    if len(shape["MetricData"]) > MAX_DATA:
        raise InvalidRequest(f"The collection MetricData must not have a size greater than {MAX_DATA}.")


def _require_metric(metric: MetricId, datum: Shape, where: str) -> None:
    _require_printable(metric.name, f"{where}.MetricName")
    for number, (name, value) in enumerate(metric.dimensions, 1):
        _require_printable(name, f"{where}.Dimensions.member.{number}.Name")
        _require_printable(value, f"{where}.Dimensions.member.{number}.Value")
        if name.startswith(":"):
            raise InvalidRequest(f'The dimension name "{name}" of {where} must not begin with a colon.')
    if len(dict(metric.dimensions)) < len(metric.dimensions):
        raise InvalidRequest(f"The parameter {where}.Dimensions has two dimensions with the same name.")
    if datum.get("StorageResolution", 60) not in (1, 60):
        raise InvalidRequest(f"The parameter {where}.StorageResolution must be 1 or 60.")


def _require_printable(text: str, where: str) -> None:
    if not text.strip() or any(not character.isprintable() for character in text):
        raise InvalidRequest(f"The parameter {where} must not be blank or contain control characters.")


def _points(call: Call, datum: Shape, where: str) -> Sequence[Point]:
    given = [member for member in _VALUE_MEMBERS if member in datum]
    if not given:
        raise Fault("MissingParameter", f"One of Value, Values and StatisticValues is required in {where}.")
    if "Value" in given and len(given) > 1:
        raise Fault(
            "InvalidParameterCombination",
            f"The parameters {where}.Value and {where}.{given[1]} are mutually exclusive and you have specified both.",
        )
    micros = _micros(call, datum, where)
    if "Value" in datum:
        return [Point.of(_number(datum["Value"], f"{where}.Value"), micros)]
    # AWS accepts Values together with StatisticValues; Values are more precise.
    if "Values" in datum:
        return _weighted_points(datum, micros, where)
    return [_summary_point(datum["StatisticValues"], micros, f"{where}.StatisticValues")]


def _micros(call: Call, datum: Shape, where: str) -> int:
    moment = datum.get("Timestamp", call.now)
    if not call.now - MAX_AGE <= moment <= call.now + MAX_AHEAD:
        raise InvalidRequest(
            f"The parameter {where}.Timestamp must be within the past two weeks or the next two hours."
        )
    return to_micros(moment)


def _weighted_points(datum: Shape, micros: int, where: str) -> Sequence[Point]:
    values = datum["Values"]
    counts = datum.get("Counts", [1.0] * len(values))
    if not 1 <= len(values) <= MAX_VALUES:
        raise InvalidRequest(f"The collection {where}.Values must have 1 to {MAX_VALUES} members.")
    if len(counts) != len(values):
        raise InvalidRequest(f"The parameters {where}.Values and {where}.Counts must be of the same size.")
    points = []
    for value, count in zip(values, counts, strict=True):
        if _number(count, f"{where}.Counts") < 0:
            raise InvalidRequest(f"The parameter {where}.Counts must not have negative members.")
        _number(value * count, f"{where}.Values")
        if count:
            points.append(Point.of(_number(value, f"{where}.Values"), micros, count=count))
    return points


def _summary_point(values: Shape, micros: int, where: str) -> Point:
    for member, value in values.items():
        _number(value, f"{where}.{member}")
    if values["SampleCount"] <= 0 or values["Minimum"] > values["Maximum"]:
        raise InvalidRequest(
            f"The parameter {where} must have a SampleCount above 0 and a Minimum that is at most its Maximum."
        )
    return Point(micros, values["Sum"], values["Minimum"], values["Maximum"], values["SampleCount"])


def _number(value: float, where: str) -> float:
    if not math.isfinite(value) or abs(value) > MAX_MAGNITUDE:
        raise InvalidRequest(
            f"The value {value} for parameter {where} is invalid; it must be between -2^360 and 2^360."
        )
    return float(value)
