"""Metrics of a training job read anew from what it wrote, by definitions it may not have had."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from trainyard.formats.extraction import Definition, MetricScanner
from trainyard.formats.patterns import LinePattern
from trainyard.job_logs import LogLine


@dataclass(frozen=True, slots=True)
class Metric:
    """What is to be said of one metric in a line."""

    name: str
    count: int
    last: float
    low: float
    high: float
    at: datetime  # when it had its last value


@dataclass(frozen=True, slots=True)
class Reading:
    """The metrics that were found, in the order of their definitions, and sentences on what was passed over."""

    metrics: Sequence[Metric]
    notes: Sequence[str]


def read_metrics(lines: Iterable[LogLine], definitions: Sequence[Definition]) -> Reading:
    """What definitions find in the lines of a job, just as its own definitions found it while it ran.

    InvalidRequest when one is not a regular expression.
    """
    for definition in definitions:
        LinePattern(definition.regex)
    notes: list[str] = []
    found: dict[str, Metric] = {}
    scanner = MetricScanner(definitions, note=notes.append)
    for (_, at_ms), written in groupby(lines, key=lambda line: (line.instance, line.at_ms)):
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        text = "".join(f"{line.text}\n" for line in written)
        for each in scanner.scan(text.encode(errors="surrogatepass")):
            one = Metric(each.metric, 1, last=each.value, low=each.value, high=each.value, at=at)
            found[each.metric] = _together(found.get(each.metric), one)
    names = dict.fromkeys(definition.name for definition in definitions)
    in_order = [found[name] for name in names if name in found]
    return Reading(in_order, [*notes, *scanner.misses()])


def _together(known: Metric | None, new: Metric) -> Metric:
    """Both as one; of equal times the newly read one is the later."""
    if known is None:
        return new
    latest = new if new.at >= known.at else known
    return replace(latest, count=known.count + new.count, low=min(known.low, new.low), high=max(known.high, new.high))
