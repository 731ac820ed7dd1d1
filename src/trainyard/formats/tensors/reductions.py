"""Numbers that follow from the eight statistics of a tensor, by the names that reductions have, and joins of parts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import ABSENT, Column, Statistics

Numbers = NDArray[np.float64]

# From statistics whose last axis are the columns.
_DERIVED: Mapping[str, Callable[[Numbers], Numbers]] = {
    "mean": lambda told: told[..., Column.MEAN],
    "std": lambda told: told[..., Column.STD],
    "mean_abs": lambda told: told[..., Column.MEAN_ABS],
    "min": lambda told: told[..., Column.MIN],
    "max": lambda told: told[..., Column.MAX],
    "zeros": lambda told: told[..., Column.ZEROS],
    "nans": lambda told: told[..., Column.NANS],
    "infs": lambda told: told[..., Column.INFS],
    "variance": lambda told: told[..., Column.STD] ** 2,
    "sum": lambda told: told[..., Column.MEAN],
    "l1": lambda told: told[..., Column.MEAN_ABS],
    "l2": lambda told: np.sqrt(_mean_square(told)),
    "abs_mean": lambda told: told[..., Column.MEAN_ABS],
    "abs_max": lambda told: np.maximum(np.abs(told[..., Column.MIN]), np.abs(told[..., Column.MAX])),
    "abs_sum": lambda told: told[..., Column.MEAN_ABS],
    "abs_variance": lambda told: _abs_variance(told),
    "abs_std": lambda told: np.sqrt(_abs_variance(told)),
    "abs_l1": lambda told: told[..., Column.MEAN_ABS],
    "abs_l2": lambda told: np.sqrt(_mean_square(told)),
}
# What of these is to be multiplied by the number of elements to some power.
_POWERS = {"sum": 1.0, "l1": 1.0, "abs_sum": 1.0, "abs_l1": 1.0, "l2": 0.5, "abs_l2": 0.5}

COLUMNS = tuple(column.name.lower() for column in Column)
STATISTICS = tuple(_DERIVED)
REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2")  # the words of smdebug

_OF_VALUES: Mapping[str, Callable[[NDArray[Any]], Any]] = {
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
    """A statistic, by its name, of tensors of so many elements; NaN where a tensor was not looked at."""
    told = statistics.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        found = _DERIVED[word](told)
    if word in _POWERS:
        found = found * np.asarray(size, np.float64) ** _POWERS[word]
    return np.where(told[..., Column.NANS] == ABSENT, np.nan, found)


def known_reductions(statistics: Statistics, *, size: int) -> dict[tuple[str, bool], float]:
    """All reductions that follow from the statistics of one tensor; none where it was not looked at."""
    if statistics[Column.NANS] == ABSENT:
        return {}
    words = [(word, False) for word in REDUCTIONS] + [(word, True) for word in REDUCTIONS]
    named = {(word, is_abs): f"abs_{word}" if is_abs else word for word, is_abs in words}
    return {key: float(derive(statistics, word, size=size)) for key, word in named.items() if word in _DERIVED}


def reduce_values(values: NDArray[Any], word: str, *, is_abs: bool = False) -> float:
    """A reduction of a raw tensor; smdebug's word for it."""
    wide = np.asarray(values, np.float64)
    return float(_OF_VALUES[word](np.abs(wide) if is_abs else wide))


def statistics_of(values: NDArray[Any]) -> Statistics:
    """The eight statistics of a raw tensor."""
    wide = np.asarray(values, np.float64).reshape(-1)
    if not wide.size:
        return np.array([0, 0, 0, 0, 0, 0, ABSENT, 0], np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        means = [wide.mean(), wide.std(), np.abs(wide).mean(), wide.min(), wide.max()]
    counts = [np.count_nonzero(wide == 0), np.count_nonzero(np.isnan(wide)), np.count_nonzero(np.isinf(wide))]
    return np.array([*means, *counts], np.float32)


def join(parts: Sequence[Statistics], sizes: Sequence[int]) -> Statistics:
    """The statistics of a tensor of which each part is told: exactly those of the whole, up to rounding."""
    told = np.stack([np.asarray(part, np.float64) for part in parts], axis=-2)  # … x parts x columns
    here = told[..., Column.NANS] != ABSENT
    weights = np.where(here, np.asarray(sizes, np.float64), 0.0)
    total = weights.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        joined = _joined(np.where(here[..., None], told, 0.0), weights, total)
        joined[..., Column.MIN] = np.where(here, told[..., Column.MIN], np.inf).min(axis=-1)
        joined[..., Column.MAX] = np.where(here, told[..., Column.MAX], -np.inf).max(axis=-1)
    # minimum and maximum let a NaN through, as they do in the parts
    joined[~here.any(axis=-1)] = [0, 0, 0, 0, 0, 0, ABSENT, 0]
    return joined.astype(np.float32)


def _joined(told: Numbers, weights: Numbers, total: Numbers) -> Numbers:
    joined: Numbers = told.sum(axis=-2)  # which is right for the counts
    mean = (told[..., Column.MEAN] * weights).sum(axis=-1) / total
    spread = told[..., Column.STD] ** 2 + (told[..., Column.MEAN] - mean[..., None]) ** 2
    joined[..., Column.MEAN] = mean
    joined[..., Column.STD] = np.sqrt((spread * weights).sum(axis=-1) / total)
    joined[..., Column.MEAN_ABS] = (told[..., Column.MEAN_ABS] * weights).sum(axis=-1) / total
    return joined


def _mean_square(told: Numbers) -> Numbers:
    return np.asarray(told[..., Column.STD] ** 2 + told[..., Column.MEAN] ** 2)


def _abs_variance(told: Numbers) -> Numbers:
    return np.asarray(np.maximum(_mean_square(told) - told[..., Column.MEAN_ABS] ** 2, 0.0))
