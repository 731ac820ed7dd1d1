"""How alike two points are: a Matérn 5/2 kernel over the numeric axes times an exponential one over the categorical.

Every point is laid into a Euclidean space in which the squared distance of two points is the sum over the axes of the
axis's weight times how far they differ along it. A numeric axis is bent first (see `warping`), a categorical one counts
one wherever the categories differ. All derivatives then are those by the squared distances along the axes of either
kind, and every gradient is a product of matrices.

A product, so that what was learned in one category is expected in another to the same shape, only less of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainyard.insight.tuning.bayesian import warping

Array = NDArray[np.float64]

_ROOT_5 = 5.0**0.5


class Bends(NamedTuple):
    """How each axis is weighed and bent: all of shape (axes,), the logarithms of what is meant."""

    weights: Array
    first: Array  # the exponent that bends the low end
    second: Array  # and the one that bends the high end


@dataclass(frozen=True, slots=True)
class Geometry:
    """The axes: how many categories each has, and none for a numeric one."""

    categories: tuple[int, ...]
    owner: NDArray[np.intp] = field(init=False)  # which axis each column of the Euclidean space belongs to
    numeric: NDArray[np.intp] = field(init=False)  # the numeric axes
    numeric_columns: NDArray[np.intp] = field(init=False)
    categorical_columns: NDArray[np.intp] = field(init=False)

    def __post_init__(self) -> None:
        widths = [max(1, count) for count in self.categories]
        starts = np.concatenate([[0], np.cumsum(widths)]).astype(np.intp)
        numeric = np.flatnonzero(np.array(self.categories, dtype=np.intp) == 0)
        object.__setattr__(self, "owner", np.repeat(np.arange(len(widths)), widths))
        object.__setattr__(self, "numeric", numeric)
        object.__setattr__(self, "numeric_columns", starts[:-1][numeric])
        object.__setattr__(self, "categorical_columns", np.setdiff1d(np.arange(starts[-1]), starts[:-1][numeric]))

    @property
    def dimension(self) -> int:
        return len(self.categories)

    def columns(self, points: Array) -> Array:
        """The points with each categorical axis as indicators, half a squared unit each, so that two differ by one."""
        spread = np.empty((len(points), len(self.owner)))
        start = 0
        for axis, count in enumerate(self.categories):
            if count:
                spread[:, start : start + count] = (points[:, axis, None] == np.arange(count)) * 0.5**0.5
            else:
                spread[:, start] = points[:, axis]
            start += max(1, count)
        return spread

    def embed(self, columns: Array, bends: Bends) -> Array:
        """The points of the Euclidean space, from `columns`."""
        laid = columns.copy()
        at, axes = self.numeric_columns, self.numeric
        laid[:, at] = warping.bend(columns[:, at], bends.first[axes], bends.second[axes])
        laid *= np.exp(0.5 * bends.weights)[self.owner]
        return laid

    def to_axes(self, gradient: Array, columns: Array, *, bends: Bends) -> Array:
        """The gradient by each numeric coordinate of the points, from the one by the embedded points; else zero."""
        by_axis = np.zeros((len(gradient), self.dimension))
        at, axes = self.numeric_columns, self.numeric
        slopes = warping.slope(columns[:, at], bends.first[axes], bends.second[axes])
        by_axis[:, axes] = gradient[:, at] * slopes * np.exp(0.5 * bends.weights[axes])
        return by_axis

    def to_bends(self, gradient: Array, columns: Array, *, embedded: Array, bends: Bends) -> Bends:
        """The gradient by each logarithm of `bends`, from the one by the embedded points."""
        by_column = 0.5 * np.einsum("ij,ij->j", gradient, embedded)
        by_weight = np.bincount(self.owner, by_column, minlength=self.dimension).astype(np.float64)
        by_first, by_second = np.zeros(self.dimension), np.zeros(self.dimension)
        at, axes = self.numeric_columns, self.numeric
        pull = gradient[:, at] * np.exp(0.5 * bends.weights[axes])
        first, second = warping.responses(columns[:, at], bends.first[axes], bends.second[axes])
        by_first[axes], by_second[axes] = np.sum(pull * first, axis=0), np.sum(pull * second, axis=0)
        return Bends(by_weight, by_first, by_second)


def squared_distances(left: Array, right: Array) -> Array:
    """Between each embedded point of `left` and each of `right`."""
    squares = left @ right.T
    squares *= -2.0
    squares += np.einsum("ij,ij->i", left, left)[:, None]
    squares += np.einsum("ij,ij->i", right, right)
    return np.maximum(squares, 0.0, out=squares)


class Likeness(NamedTuple):
    """The correlation of each point with each other one, with its derivative by the squared distance in numbers.

    By the one in categories it is the negative of the correlation itself.
    """

    correlations: Array
    slopes: Array


def likeness(left: Array, right: Array, *, geometry: Geometry) -> Likeness:
    """Between each embedded point of `left` and each of `right`."""
    distance = _ROOT_5 * np.sqrt(
        squared_distances(left[:, geometry.numeric_columns], right[:, geometry.numeric_columns])
    )
    decay = np.exp(-distance)
    if len(geometry.categorical_columns):
        at = geometry.categorical_columns
        decay *= np.exp(-squared_distances(left[:, at], right[:, at]))
    slopes = 1.0 + distance
    correlations = slopes + distance * distance / 3.0
    correlations *= decay
    slopes *= decay
    slopes *= -5.0 / 6.0
    return Likeness(correlations, slopes)


def pull(force: Array, left: Array, right: Array) -> Array:
    """How a sum of functions of squared distances grows as the points of `left` move, from the derivative by each."""
    return np.asarray(2.0 * (force.sum(axis=1)[:, None] * left - force @ right))


def geometry_of(counts: Sequence[int | None], categorical: Sequence[bool]) -> Geometry:
    """From how many values each axis has and which ones are categorical."""
    return Geometry(tuple((count or 0) if is_one else 0 for count, is_one in zip(counts, categorical, strict=True)))
