"""Read metrics from the log of a training job, with definitions that the job itself need not have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from trainyard._sdk.training.cloudwatch import LogLine
from trainyard.formats.extraction import MetricPattern, MetricScanner
from trainyard.formats.patterns import LinePattern


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
class LogMetrics:
    """The metrics found, in the order of their definitions, and notes about lines that were skipped."""

    metrics: Sequence[MetricStatistics]
    notes: Sequence[str]


def read_metrics(lines: Iterable[LogLine], definitions: Sequence[MetricPattern]) -> LogMetrics:
    """Read metrics from the lines of a job in the same way as the agent does while the job runs.

    Raises InvalidRequest for an invalid regular expression.
    """
    for definition in definitions:
        LinePattern(definition.regex)
    notes: list[str] = []
    found: dict[str, MetricStatistics] = {}
    scanner = MetricScanner(definitions, note=notes.append)
    for (_, at_ms), written in groupby(lines, key=lambda line: (line.instance, line.at_ms)):
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        text = "".join(f"{line.text}\n" for line in written)
        for each in scanner.scan(text.encode(errors="surrogatepass")):
            one = MetricStatistics(each.metric, 1, last=each.value, low=each.value, high=each.value, at=at)
            found[each.metric] = _merge(found.get(each.metric), one)
    names = dict.fromkeys(definition.name for definition in definitions)
    in_order = [found[name] for name in names if name in found]
    return LogMetrics(in_order, [*notes, *scanner.misses()])


def _merge(known: MetricStatistics | None, new: MetricStatistics) -> MetricStatistics:
    """Merge two statistics. At equal times, the new value counts as the later one."""
    if known is None:
        return new
    latest = new if new.at >= known.at else known
    return replace(latest, count=known.count + new.count, low=min(known.low, new.low), high=max(known.high, new.high))
