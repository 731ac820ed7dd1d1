"""The metrics of a training job: as the yard recorded them, or read from the log with other definitions."""

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Protocol

from trainyard._sdk.connection import Api
from trainyard._sdk.training.cloudwatch import LogLine, metric_datapoints
from trainyard._sdk.training.stream import Description
from trainyard.formats.downsampling import find_extremes
from trainyard.formats.extraction import MetricPattern, MetricScanner
from trainyard.formats.patterns import LinePattern
from trainyard.foundation.errors import Unavailable


@dataclass(frozen=True, slots=True)
class MetricStatistics:
    """The statistics of one metric. `at` is the time of the last value."""

    name: str
    count: int
    last: float
    low: float
    high: float
    at: datetime


@dataclass(frozen=True, slots=True)
class MetricPoints:
    """Some points of a metric, of one instance in one attempt, in the order in which they were recorded.

    `attempt` is 0 if it is unknown.
    """

    instance: str
    attempt: int
    at_us: Sequence[int]
    values: Sequence[float]


class JobMetrics(Protocol):
    """The metrics of a job: their statistics, in order, notes about what was left out, and their points."""

    @property
    def metrics(self) -> Sequence[MetricStatistics]: ...

    @property
    def notes(self) -> Sequence[str]: ...

    def points(self, name: str, *, max_points: int | None = None) -> Iterator[MetricPoints]:
        """Yield all points of a metric, or about `max_points` of them: the extremes of equally long parts."""


class RecordedMetrics:
    """The metrics that the yard has recorded for a job."""

    notes: Sequence[str] = ()

    def __init__(self, api: Api, description: Description) -> None:
        self._api, self._name = api, description["TrainingJobName"]
        self.metrics = [
            _recorded_metric(api, description, final) for final in description.get("FinalMetricDataList", ())
        ]

    def points(self, name: str, *, max_points: int | None = None) -> Iterator[MetricPoints]:
        return read_points(self._api, self._name, name, max_points=max_points)


@dataclass(frozen=True, slots=True)
class LogMetrics:
    """The metrics found in a log, in the order of their definitions, and notes about lines that were skipped."""

    metrics: Sequence[MetricStatistics]
    notes: Sequence[str]
    found: Sequence["_FoundPoints"] = field(default=(), repr=False)

    def points(self, name: str, *, max_points: int | None = None) -> Iterator[MetricPoints]:
        wanted = [each for each in self.found if each.metric == name]
        count = sum(len(each.values) for each in wanted)
        part = 1 if max_points is None else -(-count // max(max_points // 2, 1))
        for each in wanted:
            numbers = list(find_extremes(each.values, part)) if part > 2 else range(len(each.values))
            values = [each.values[number] for number in numbers]
            yield MetricPoints(each.instance, 0, [each.at_us[number] for number in numbers], values)


def read_points(api: Api, job_name: str, metric: str, *, max_points: int | None = None) -> Iterator[MetricPoints]:
    """Yield the points of a metric that the yard has recorded. Raises Unavailable if the yard breaks off."""
    request = {"TrainingJobName": job_name, "MetricName": metric}
    with api.stream("trainyard", "ReadMetric", **request, **({"MaxPoints": max_points} if max_points else {})) as lines:
        for line in lines:
            try:
                message = json.loads(line)
            except json.JSONDecodeError:
                break
            if not message:
                return
            yield MetricPoints(message["instance"], message["attempt"], message["at_us"], message["values"])
    raise Unavailable(f'The yard stopped before it had sent all points of "{metric}"; try again.')


def in_time_order(batches: Iterable[MetricPoints]) -> list[tuple[int, float]]:
    """Return the points of all instances by time. Those of one moment keep the order in which they were recorded."""
    points = (point for batch in batches for point in zip(batch.at_us, batch.values, strict=True))
    return sorted(points, key=lambda point: point[0])


def read_metrics(lines: Iterable[LogLine], definitions: Sequence[MetricPattern]) -> LogMetrics:
    """Read metrics from the lines of a job in the same way as the agent does while the job runs.

    Raises InvalidRequest for an invalid regular expression.
    """
    for definition in definitions:
        LinePattern(definition.regex)
    notes: list[str] = []
    found: dict[str, MetricStatistics] = {}
    points: dict[tuple[str, str], _FoundPoints] = {}
    scanner = MetricScanner(definitions, note=notes.append)
    for (instance, at_ms), written in groupby(lines, key=lambda line: (line.instance, line.at_ms)):
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        text = "".join(f"{line.text}\n" for line in written)
        for each in scanner.scan(text.encode(errors="surrogatepass")):
            one = MetricStatistics(each.metric, 1, last=each.value, low=each.value, high=each.value, at=at)
            found[each.metric] = _merge(found.get(each.metric), one)
            series = points.setdefault((each.metric, instance), _FoundPoints(each.metric, instance))
            series.at_us.append(at_ms * 1000)
            series.values.append(each.value)
    names = dict.fromkeys(definition.name for definition in definitions)
    in_order = [found[name] for name in names if name in found]
    return LogMetrics(in_order, [*notes, *scanner.misses()], list(points.values()))


@dataclass(frozen=True, slots=True)
class _FoundPoints:
    """The points of a metric in the log of one instance."""

    metric: str
    instance: str
    at_us: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))


def _merge(known: MetricStatistics | None, new: MetricStatistics) -> MetricStatistics:
    """Merge two statistics. At equal times, the new value counts as the later one."""
    if known is None:
        return new
    latest = new if new.at >= known.at else known
    return replace(latest, count=known.count + new.count, low=min(known.low, new.low), high=max(known.high, new.high))


def _recorded_metric(api: Api, description: Description, final: Mapping[str, Any]) -> MetricStatistics:
    """Return a metric of the job: its last value from the description, the rest from CloudWatch."""
    start = description["CreationTime"] - timedelta(minutes=1)
    end = (description.get("TrainingEndTime") or datetime.now(UTC)) + timedelta(minutes=1)
    points = metric_datapoints(
        api,
        description["TrainingJobName"],
        final["MetricName"],
        start=start,
        end=end,
        statistics=["Minimum", "Maximum", "SampleCount"],
    )
    return MetricStatistics(
        final["MetricName"],
        int(sum(point["SampleCount"] for point in points)),
        final["Value"],
        min((point["Minimum"] for point in points), default=final["Value"]),
        max((point["Maximum"] for point in points), default=final["Value"]),
        final["Timestamp"],
    )
