"""The kernel of the Gaussian process: how strongly the objective correlates at two points.

It is a Matérn 5/2 kernel over the numeric axes times an exponential kernel over the categorical ones, with a
lengthscale for each axis. As a product it expects the same shape in every category, only weaker.

Every point is embedded in a Euclidean space. There, the squared distance of two points is the sum over all axes of the
axis's weight (1 / lengthscale²) times the squared difference along it; different categories differ by one. All
derivatives are taken by the squared distances, so every gradient is a product of matrices.

Numeric axes are warped first, by the distribution function of Kumaraswamy: a stationary kernel then also fits an
objective that varies more at one end of an axis. Both exponents are stored as logarithms; zero leaves the axis as is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# The derivatives of the warp are not finite at the very ends of the unit interval.
_EDGE = 1e-9


def warp(units: Array, log_a: Array, log_b: Array) -> Array:
    """Warp coordinates of the unit interval, each column by its own exponents."""
    raised = _clip_inside(units) ** np.exp(log_a)
    return 1.0 - (1.0 - raised) ** np.exp(log_b)


def unwarp(units: Array, log_a: Array, log_b: Array) -> Array:
    """Undo `warp`."""
    raised = 1.0 - (1.0 - _clip_inside(units)) ** np.exp(-log_b)
    return raised ** np.exp(-log_a)


def warp_slope(units: Array, log_a: Array, log_b: Array) -> Array:
    """Return the derivative of `warp` by the coordinate."""
    inside, a, b = _clip_inside(units), np.exp(log_a), np.exp(log_b)
    return a * b * inside ** (a - 1.0) * (1.0 - inside**a) ** (b - 1.0)


def warp_exponent_gradients(units: Array, log_a: Array, log_b: Array) -> tuple[Array, Array]:
    """Return the derivatives of `warp` by the logarithm of each exponent."""
    inside, a, b = _clip_inside(units), np.exp(log_a), np.exp(log_b)
    raised = inside**a
    rest = 1.0 - raised
    by_log_a = b * rest ** (b - 1.0) * raised * a * np.log(inside)
    by_log_b = -(rest**b) * b * np.log(rest)
    return by_log_a, by_log_b


def _clip_inside(units: Array) -> Array:
    return np.clip(units, _EDGE, 1.0 - _EDGE)


_ROOT_5 = 5.0**0.5


class AxisParameters(NamedTuple):
    """The weight and the warp of each axis, as logarithms; each array has the shape (axes,)."""

    log_weights: Array
    # The exponent that bends the low end, and the one that bends the high end.
    log_warp_a: Array
    log_warp_b: Array


@dataclass(frozen=True, slots=True)
class Geometry:
    """The axes: the number of categories of each, zero for a numeric axis."""

    categories: tuple[int, ...]
    # The axis of each column of the Euclidean space.
    owner: NDArray[np.intp] = field(init=False)
    # The indices of the numeric axes.
    numeric: NDArray[np.intp] = field(init=False)
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
        """One-hot encode the categorical axes, scaled so that the squared distance of two categories is one."""
        spread = np.empty((len(points), len(self.owner)))
        start = 0
        for axis, count in enumerate(self.categories):
            if count:
                spread[:, start : start + count] = (points[:, axis, None] == np.arange(count)) * 0.5**0.5
            else:
                spread[:, start] = points[:, axis]
            start += max(1, count)
        return spread

    def embed(self, columns: Array, axis_parameters: AxisParameters) -> Array:
        """Embed `columns` in the Euclidean space: warp the numeric ones and apply the weights."""
        scaled = columns.copy()
        at, axes = self.numeric_columns, self.numeric
        scaled[:, at] = warp(columns[:, at], axis_parameters.log_warp_a[axes], axis_parameters.log_warp_b[axes])
        scaled *= np.exp(0.5 * axis_parameters.log_weights)[self.owner]
        return scaled

    def gradient_by_axis(self, gradient: Array, columns: Array, *, axis_parameters: AxisParameters) -> Array:
        """Return the gradient by the numeric coordinates, from that by the embedded points; zero for categories."""
        by_axis = np.zeros((len(gradient), self.dimension))
        at, axes = self.numeric_columns, self.numeric
        slopes = warp_slope(columns[:, at], axis_parameters.log_warp_a[axes], axis_parameters.log_warp_b[axes])
        by_axis[:, axes] = gradient[:, at] * slopes * np.exp(0.5 * axis_parameters.log_weights[axes])
        return by_axis

    def gradient_by_parameters(
        self, gradient: Array, columns: Array, *, embedded: Array, axis_parameters: AxisParameters
    ) -> AxisParameters:
        """Return the gradient by each axis parameter, from the gradient by the embedded points."""
        by_column = 0.5 * np.einsum("ij,ij->j", gradient, embedded)
        by_weight = np.bincount(self.owner, by_column, minlength=self.dimension).astype(np.float64)
        by_first, by_second = np.zeros(self.dimension), np.zeros(self.dimension)
        at, axes = self.numeric_columns, self.numeric
        weighted = gradient[:, at] * np.exp(0.5 * axis_parameters.log_weights[axes])
        first, second = warp_exponent_gradients(
            columns[:, at], axis_parameters.log_warp_a[axes], axis_parameters.log_warp_b[axes]
        )
        by_first[axes], by_second[axes] = np.sum(weighted * first, axis=0), np.sum(weighted * second, axis=0)
        return AxisParameters(by_weight, by_first, by_second)


def squared_distances(left: Array, right: Array) -> Array:
    """Return the squared distance between each embedded point of `left` and each of `right`."""
    squares = left @ right.T
    squares *= -2.0
    squares += np.einsum("ij,ij->i", left, left)[:, None]
    squares += np.einsum("ij,ij->i", right, right)
    return np.maximum(squares, 0.0, out=squares)


class KernelValues(NamedTuple):
    """The correlation of each pair of points, and its derivative by the squared distance along the numeric axes.

    The derivative by the squared distance along the categorical axes is the negative correlation.
    """

    correlations: Array
    slopes: Array


def evaluate_kernel(left: Array, right: Array, *, geometry: Geometry) -> KernelValues:
    """Evaluate the kernel between each embedded point of `left` and each of `right`."""
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
    return KernelValues(correlations, slopes)


def distance_gradient(force: Array, left: Array, right: Array) -> Array:
    """Return the gradient by the points of `left`, from the derivative by each squared distance, `force`."""
    return np.asarray(2.0 * (force.sum(axis=1)[:, None] * left - force @ right))


def kernel_geometry(counts: Sequence[int | None], categorical: Sequence[bool]) -> Geometry:
    """Return the geometry, from the number of values of each axis and which axes are categorical."""
    return Geometry(
        tuple((count or 0) if is_categorical else 0 for count, is_categorical in zip(counts, categorical, strict=True))
    )
