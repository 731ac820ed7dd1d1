"""Samples as arrays by dimension and name, and the choice of those that a chart draws."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainyard._sdk.profiling.events import SystemEvent
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.extras import extra_of

try:
    import numpy as np
    from numpy.typing import NDArray
except ModuleNotFoundError as error:
    raise (extra_of(error) or error) from error

# The mean of all names of a dimension.
TOTAL = "total"

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one series in order of time, in seconds since 1970."""

    times: Numbers
    values: Numbers

    def __len__(self) -> int:
        return len(self.times)

    def after(self, other: "Samples") -> "Samples":
        """Return these samples behind those of an earlier period."""
        return _in_order(np.concatenate([other.times, self.times]), np.concatenate([other.values, self.values]))


# By dimension, with the node in it if nodes are apart, and name.
SeriesTable = dict[str, dict[str, Samples]]


def series_table(events: Iterable[SystemEvent], *, by_node: bool) -> SeriesTable:
    """Return the samples of events, and for each dimension the mean of its names as "total"."""
    lists: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for event in events:
        dimension = f"{event.dimension}-nodeid:{event.node_id}" if by_node else event.dimension
        times, values = lists.setdefault((dimension, event.name), ([], []))
        times.append(event.timestamp)
        values.append(event.value)
    table: SeriesTable = {}
    for (dimension, name), (times, values) in sorted(lists.items()):
        table.setdefault(dimension, {})[name] = _in_order(np.asarray(times, float), np.asarray(values, float))
    for names in table.values():
        names[TOTAL] = _mean(list(names.values()))
    return table


def extend(table: SeriesTable, later: SeriesTable) -> None:
    """Add the samples of a later period."""
    for dimension, names in later.items():
        known = table.setdefault(dimension, {})
        for name, samples in names.items():
            known[name] = samples.after(known[name]) if name in known else samples


def choose(names: Iterable[str], patterns: Sequence[str], *, prefix: str = "") -> list[str]:
    """Return the names in which one of the regular expressions is found, sorted."""
    try:
        compiled = [re.compile(prefix + pattern) for pattern in patterns]
    except re.error as error:
        raise InvalidRequest(f"{list(patterns)} is not a list of regular expressions: {error}.") from error
    return sorted({name for name in names if any(pattern.search(name) for pattern in compiled)})


def names_in(table: Mapping[str, Mapping[str, Samples]]) -> set[str]:
    return {name for names in table.values() for name in names}


def _in_order(times: Numbers, values: Numbers) -> Samples:
    """Return samples in order of time, each time once."""
    times, first = np.unique(times, return_index=True)
    return Samples(times, values[first])


def _mean(many: Sequence[Samples]) -> Samples:
    """Return the mean at every time of any of the series."""
    times, place = np.unique(np.concatenate([each.times for each in many]), return_inverse=True)
    sums = np.bincount(place, np.concatenate([each.values for each in many]))
    return Samples(times, sums / np.bincount(place))


def extremes(samples: Samples, most: int) -> NDArray[np.int64]:
    """Return the places of about `most` samples that look like all: of each part, the lowest and the highest."""
    if len(samples) <= most:
        return np.arange(len(samples))
    edges = np.linspace(0, len(samples), max(2, most // 2) + 1).astype(np.int64)
    chosen = [0, len(samples) - 1]
    for start, stop in pairwise(edges):
        part = samples.values[start:stop]
        chosen += [int(start + part.argmin()), int(start + part.argmax())]
    return np.unique(np.asarray(chosen))
