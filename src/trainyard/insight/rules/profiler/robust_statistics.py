"""Statistics that a few odd values do not change: medians, deviations from them, trends, distances of distributions."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainyard.insight.profiling.contract import Numbers

# Scales the median absolute deviation to the standard deviation of a normal distribution.
MAD_TO_SIGMA = 1.4826
# How many points a trend is computed from; it compares all pairs of them.
_TREND_POINTS = 240
# As AWS's: bins of 2 percent.
_BINS = np.linspace(0.0, 100.0, 51)


@dataclass(frozen=True, slots=True)
class Trend:
    """The slope of Theil and Sen per second, and Kendall's tau with its z value: how sure it is that there is one."""

    slope_per_s: float
    tau: float
    z: float


def finite(values: Numbers) -> Numbers:
    """Return the values that are numbers."""
    kept: Numbers = values[np.isfinite(values)]
    return kept


def number_or_none(value: float) -> float | None:
    """Return a number as a JSON value: None if it is NaN or infinite."""
    return float(value) if math.isfinite(value) else None


def percentile(values: Numbers, percent: float) -> float:
    """Return a percentile of the values that are numbers; NaN if none is."""
    kept = finite(values)
    return float(np.percentile(kept, percent)) if len(kept) else math.nan


def mean(values: Numbers) -> float:
    kept = finite(values)
    return float(kept.mean()) if len(kept) else math.nan


def median_points(seconds: Numbers, values: Numbers, *, count: int = _TREND_POINTS) -> tuple[Numbers, Numbers]:
    """Return at most `count` points: the medians of as many groups of values, in order of time."""
    known = np.isfinite(values) & np.isfinite(seconds)
    times, numbers = seconds[known], values[known]
    if len(numbers) <= count:
        return times, numbers
    size = -(-len(numbers) // count)
    whole = len(numbers) // size * size
    middle_times = np.median(times[:whole].reshape(-1, size), axis=1)
    middles = np.median(numbers[:whole].reshape(-1, size), axis=1)
    if whole < len(numbers):
        middle_times = np.append(middle_times, np.median(times[whole:]))
        middles = np.append(middles, np.median(numbers[whole:]))
    return middle_times, middles


def trend(seconds: Numbers, values: Numbers) -> Trend:
    """Return the trend of values over time: no trend for fewer than three of them."""
    times, numbers = median_points(seconds, values)
    count = len(numbers)
    if count < 3:
        return Trend(0.0, 0.0, 0.0)
    first, second = np.triu_indices(count, k=1)
    rises = numbers[second] - numbers[first]
    spans = times[second] - times[first]
    is_apart = spans > 0
    slope = float(np.median(rises[is_apart] / spans[is_apart])) if is_apart.any() else 0.0
    score = float(np.sign(rises).sum())
    pairs = count * (count - 1) / 2
    _, ties = np.unique(numbers, return_counts=True)
    variance = (count * (count - 1) * (2 * count + 5) - float((ties * (ties - 1.0) * (2 * ties + 5)).sum())) / 18
    z = (score - math.copysign(1.0, score)) / math.sqrt(variance) if score and variance > 0 else 0.0
    return Trend(slope, score / pairs, z)


def distance(first: Numbers, second: Numbers) -> float:
    """Return the Jensen-Shannon distance of two sets of percentages, as AWS computes it; NaN if one is empty."""
    one, other = _histogram(first), _histogram(second)
    if not one.any() or not other.any():
        return math.nan
    one, other = one / one.sum(), other / other.sum()
    middle = (one + other) / 2
    return math.sqrt(max(0.0, (_divergence(one, middle) + _divergence(other, middle)) / 2))


def _histogram(values: Numbers) -> Numbers:
    counts, _ = np.histogram(np.clip(finite(values), 0.0, 100.0), bins=_BINS)
    return counts.astype(np.float64)


def _divergence(values: Numbers, reference: Numbers) -> float:
    used: NDArray[np.bool_] = values > 0
    return float((values[used] * np.log(values[used] / reference[used])).sum())
