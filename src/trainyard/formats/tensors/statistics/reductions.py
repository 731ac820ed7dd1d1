"""Reductions that follow from the eight statistics of a tensor, and the statistics of joined parts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import ABSENT, Statistic, Statistics

Numbers = NDArray[np.float64]

# Computed from statistics whose last axis is the columns.
_DERIVED: Mapping[str, Callable[[Numbers], Numbers]] = {
    "mean": lambda stats: stats[..., Statistic.MEAN],
    "std": lambda stats: stats[..., Statistic.STD],
    "mean_abs": lambda stats: stats[..., Statistic.MEAN_ABS],
    "min": lambda stats: stats[..., Statistic.MIN],
    "max": lambda stats: stats[..., Statistic.MAX],
    "zeros": lambda stats: stats[..., Statistic.ZEROS],
    "zero_share": lambda stats: stats[..., Statistic.ZEROS],
    "nans": lambda stats: stats[..., Statistic.NANS],
    "infs": lambda stats: stats[..., Statistic.INFS],
    "variance": lambda stats: stats[..., Statistic.STD] ** 2,
    "sum": lambda stats: stats[..., Statistic.MEAN],
    "l1": lambda stats: stats[..., Statistic.MEAN_ABS],
    "l2": lambda stats: np.sqrt(_mean_square(stats)),
    "abs_mean": lambda stats: stats[..., Statistic.MEAN_ABS],
    "abs_max": lambda stats: np.maximum(np.abs(stats[..., Statistic.MIN]), np.abs(stats[..., Statistic.MAX])),
    "abs_sum": lambda stats: stats[..., Statistic.MEAN_ABS],
    "abs_variance": lambda stats: _abs_variance(stats),
    "abs_std": lambda stats: np.sqrt(_abs_variance(stats)),
    "abs_l1": lambda stats: stats[..., Statistic.MEAN_ABS],
    "abs_l2": lambda stats: np.sqrt(_mean_square(stats)),
}
# Reductions that are multiplied by this power of the number of elements.
_POWERS = {"zero_share": -1.0, "sum": 1.0, "l1": 1.0, "abs_sum": 1.0, "abs_l1": 1.0, "l2": 0.5, "abs_l2": 0.5}

COLUMNS = tuple(column.name.lower() for column in Statistic)
STATISTICS = tuple(_DERIVED)
# The words of smdebug.
REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2")

_BY_VALUES: Mapping[str, Callable[[NDArray[Any]], Any]] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "std": np.std,
    "variance": np.var,
    "sum": np.sum,
    "prod": np.prod,
    "l1": lambda values: np.abs(values).sum(),
    "l2": lambda values: np.sqrt(np.square(values).sum()),
}


def derive(statistics: NDArray[np.floating], word: str, *, size: Any) -> Numbers:
    """Return a statistic by name, for tensors of `size` elements; NaN if a tensor was not captured."""
    stats = statistics.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        derived = _DERIVED[word](stats)
        if word in _POWERS:
            derived = derived * np.asarray(size, np.float64) ** _POWERS[word]
    return np.where(stats[..., Statistic.NANS] == ABSENT, np.nan, derived)


def known_reductions(statistics: Statistics, *, size: int) -> dict[tuple[str, bool], float]:
    """Return all reductions that follow from the statistics of one tensor; none if it was not captured."""
    if statistics[Statistic.NANS] == ABSENT:
        return {}
    words = [(word, False) for word in REDUCTIONS] + [(word, True) for word in REDUCTIONS]
    named = {(word, is_abs): f"abs_{word}" if is_abs else word for word, is_abs in words}
    return {key: float(derive(statistics, word, size=size)) for key, word in named.items() if word in _DERIVED}


def reduce_values(values: NDArray[Any], word: str, *, is_abs: bool = False) -> float:
    """Return a reduction of a raw tensor, by smdebug's word for it."""
    wide = np.asarray(values, np.float64)
    return float(_BY_VALUES[word](np.abs(wide) if is_abs else wide))


def statistics_of(values: NDArray[Any]) -> Statistics:
    """Return the eight statistics of a raw tensor."""
    wide = np.asarray(values, np.float64).reshape(-1)
    if not wide.size:
        return np.array([0, 0, 0, 0, 0, 0, ABSENT, 0], np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        means = [wide.mean(), wide.std(), np.abs(wide).mean(), wide.min(), wide.max()]
    counts = [np.count_nonzero(wide == 0), np.count_nonzero(np.isnan(wide)), np.count_nonzero(np.isinf(wide))]
    return np.array([*means, *counts], np.float32)


def join(parts: Sequence[Statistics], sizes: Sequence[int]) -> Statistics:
    """Return the statistics of a tensor from those of its parts, exact up to rounding."""
    # … x parts x columns
    stats = np.stack([np.asarray(part, np.float64) for part in parts], axis=-2)
    is_captured = stats[..., Statistic.NANS] != ABSENT
    weights = np.where(is_captured, np.asarray(sizes, np.float64), 0.0)
    total = weights.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        joined = _join_moments(np.where(is_captured[..., None], stats, 0.0), weights, total)
        joined[..., Statistic.MIN] = np.where(is_captured, stats[..., Statistic.MIN], np.inf).min(axis=-1)
        joined[..., Statistic.MAX] = np.where(is_captured, stats[..., Statistic.MAX], -np.inf).max(axis=-1)
    # Minimum and maximum propagate a NaN, as they do in the parts.
    joined[~is_captured.any(axis=-1)] = [0, 0, 0, 0, 0, 0, ABSENT, 0]
    return joined.astype(np.float32)


def _join_moments(stats: Numbers, weights: Numbers, total: Numbers) -> Numbers:
    # The sum is right for the counts; the moments replace it below.
    joined: Numbers = stats.sum(axis=-2)
    mean = (stats[..., Statistic.MEAN] * weights).sum(axis=-1) / total
    spread = stats[..., Statistic.STD] ** 2 + (stats[..., Statistic.MEAN] - mean[..., None]) ** 2
    joined[..., Statistic.MEAN] = mean
    joined[..., Statistic.STD] = np.sqrt((spread * weights).sum(axis=-1) / total)
    joined[..., Statistic.MEAN_ABS] = (stats[..., Statistic.MEAN_ABS] * weights).sum(axis=-1) / total
    return joined


def _mean_square(stats: Numbers) -> Numbers:
    return np.asarray(stats[..., Statistic.STD] ** 2 + stats[..., Statistic.MEAN] ** 2)


def _abs_variance(stats: Numbers) -> Numbers:
    return np.asarray(np.maximum(_mean_square(stats) - stats[..., Statistic.MEAN_ABS] ** 2, 0.0))
