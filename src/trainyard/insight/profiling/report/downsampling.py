"""Series as few points: means with their extremes, one for each stretch of time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainyard.insight.profiling.contract import Numbers

# In one series of a chart; more would be finer than a pixel.
MAX_POINTS = 480


@dataclass(frozen=True, slots=True)
class PointBuckets:
    """Equal stretches from `start` to `end`. What is in none is NaN."""

    start: float
    end: float
    means: Numbers
    minima: Numbers
    maxima: Numbers

    def __len__(self) -> int:
        return len(self.means)

    @property
    def positions(self) -> Numbers:
        """The middle of each stretch."""
        middles: Numbers = np.linspace(self.start, self.end, 2 * len(self) + 1)[1::2]
        return middles


def average_by_time(
    positions: NDArray[np.int64] | Numbers,
    values: Numbers,
    *,
    start: float,
    end: float,
    weights: Numbers | None = None,
    points: int = MAX_POINTS,
) -> PointBuckets:
    """Divide a series, in any order, into at most so many stretches: fewer if it has fewer values."""
    is_known = np.isfinite(values) & (positions >= start) & (positions <= end)
    positions, values = positions[is_known], values[is_known]
    weights = np.ones(len(values)) if weights is None else weights[is_known]
    count = max(1, min(points, len(values)))
    means, minima, maxima = (np.full(count, np.nan) for _ in range(3))
    if not len(values) or end <= start:
        return PointBuckets(start, end, means, minima, maxima)
    place = np.minimum(((positions - start) * (count / (end - start))).astype(np.int64), count - 1)
    total, weight = np.bincount(place, values * weights, count), np.bincount(place, weights, count)
    np.divide(total, weight, out=means, where=weight > 0)
    order = np.argsort(place, kind="stable") if np.any(place[1:] < place[:-1]) else slice(None)
    place, values = place[order], values[order]
    first = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]]))
    minima[place[first]] = np.minimum.reduceat(values, first)
    maxima[place[first]] = np.maximum.reduceat(values, first)
    return PointBuckets(start, end, means, minima, maxima)


def follow_levels(
    positions: NDArray[np.int64] | Numbers, levels: Numbers, *, start: float, end: float, points: int = MAX_POINTS
) -> PointBuckets:
    """Divide a level that stays until it changes into stretches, each with its level at the end, and its extremes.

    Positions are in order; before the first, the level is unknown.
    """
    edges = np.linspace(start, end, points + 1)
    last = np.searchsorted(positions, edges, side="right") - 1
    at_edges = np.where(last >= 0, levels[np.maximum(last, 0)], np.nan) if len(levels) else np.full(points + 1, np.nan)
    minima, maxima = np.fmin(at_edges[:-1], at_edges[1:]), np.fmax(at_edges[:-1], at_edges[1:])
    place = np.clip(np.searchsorted(edges, positions, side="right") - 1, 0, points - 1)
    np.fmin.at(minima, place, levels)
    np.fmax.at(maxima, place, levels)
    return PointBuckets(start, end, at_edges[1:], minima, maxima)


def weighted_quantiles(values: Numbers, weights: Numbers, shares: tuple[float, ...]) -> list[float]:
    """Return quantiles of values that each stand for several; NaN if there are none."""
    if not len(values):
        return [float("nan")] * len(shares)
    order = np.argsort(values)
    values, reached = values[order], np.cumsum(weights[order])
    at = np.searchsorted(reached, np.array(shares) * reached[-1], side="left")
    return [float(value) for value in values[np.minimum(at, len(values) - 1)]]
