"""The response surface: how the objective depends on the hyperparameters, estimated from the trials.

The surface is the posterior mean of the Gaussian process that the Bayesian strategy uses too. It gives the partial
dependence of the objective on one or two hyperparameters, averaged over all others, and the importance of each
hyperparameter. Importances are Sobol indices, the shares of a functional analysis of variance: how much of the
surface's variance is due to one hyperparameter alone, and how much to it and its interactions with others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainyard.foundation.jobs.tuning import HyperparameterRange
from trainyard.insight.tuning.bayesian.kernel import kernel_geometry
from trainyard.insight.tuning.bayesian.likelihood import fit_process
from trainyard.insight.tuning.bayesian.prior import Prior
from trainyard.insight.tuning.chart_axes import ChartAxis
from trainyard.insight.tuning.contract import MIN_FITTED_TRIALS
from trainyard.insight.tuning.scales import Floats
from trainyard.insight.tuning.space import Space

# Points of the space from which the shares of variance are estimated.
_SOBOL_SAMPLES = 1024
# Points over which a partial dependence averages the other hyperparameters.
_BACKGROUND_POINTS = 128
# Points per evaluation, so that 500 trials need only some megabytes.
_CHUNK = 4096
# Worse values are clipped here, in distances from the median to the best.
_MAX_DISTANCE = 4.0


@dataclass(frozen=True, slots=True)
class Importance:
    """The share of the objective's variance due to a hyperparameter: alone, and with its interactions."""

    name: str
    alone: float
    with_others: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """The objective that a trial is expected to have, and the standard deviation of that, noise included."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class PartialDependence:
    """The objective at positions along a chart axis, from 0 to 1, averaged over all other hyperparameters."""

    positions: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class JointPartialDependence:
    """The objective over two chart axes, averaged over the others: a row for each position of the second."""

    x_positions: tuple[float, ...]
    y_positions: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]


class Surface:
    """The objective over a search space, fitted to points whose objective is known."""

    def __init__(self, space: Space, rows: Floats, values: Floats) -> None:
        self.space = space
        self.chart_axes = tuple(ChartAxis(axis) for axis in space.axes)
        self._mean, self._deviation = float(np.mean(values)), float(np.std(values))
        geometry = kernel_geometry([axis.count for axis in space.axes], [axis.is_categorical for axis in space.axes])
        targets = (values - self._mean) / self._deviation
        self._process = fit_process(geometry, Prior(), points=rows, targets=targets)

    @cached_property
    def explained(self) -> float:
        """The share of the trials' variance that leave-one-out predictions explain, from 0 to 1."""
        errors = self._process.leave_one_out().mean - self._process.targets
        return float(np.clip(1.0 - np.mean(errors**2), 0.0, 1.0))

    def importances(self) -> list[Importance]:
        """Return the importance of each hyperparameter, the most important first; deterministic."""
        generator = np.random.default_rng(0)
        first, second = generator.random((2, _SOBOL_SAMPLES, self.space.dimension))
        of_first, of_second = self._at_units(first), self._at_units(second)
        variance = float(np.var(np.concatenate([of_first, of_second])))
        found = []
        for column, axis in enumerate(self.space.axes):
            mixed = first.copy()
            mixed[:, column] = second[:, column]
            of_mixed = self._at_units(mixed)
            alone = 1.0 - _half_mean_square(of_second - of_mixed, variance)
            found.append(_importance(axis.name, alone, _half_mean_square(of_first - of_mixed, variance)))
        return sorted(found, key=lambda each: -each.with_others)

    def predict(self, values: Mapping[str, str]) -> Prediction | None:
        """Predict the objective of a trial with these values; None if one of them is missing or invalid."""
        row = self.space.encode(self.space.values(values))
        if row is None:
            return None
        posterior = self._process.posterior(row[None])
        noise = float(np.exp(self._process.hyperparameters.log_noise_variance))
        mean = float(posterior.mean[0]) * self._deviation + self._mean
        return Prediction(mean, float(np.sqrt(max(float(posterior.variance[0]), 0.0) + noise)) * self._deviation)

    def partial_dependence(self, name: str, *, positions: int = 41) -> PartialDependence:
        """Return the partial dependence of the objective on one hyperparameter."""
        column = self._column(name)
        chart_axis = self.chart_axes[column]
        at = chart_axis.positions(positions)
        units = self._background_points(len(at))
        units[:, :, column] = np.array(at)[:, None]
        means = self._means(units)
        return PartialDependence(tuple(at), tuple(float(value) for value in means))

    def joint_partial_dependence(self, x: str, y: str, *, positions: int = 25) -> JointPartialDependence:
        """Return the partial dependence of the objective on two hyperparameters."""
        columns = self._column(x), self._column(y)
        x_at, y_at = (self.chart_axes[column].positions(positions) for column in columns)
        units = self._background_points(len(x_at) * len(y_at))
        units[:, :, columns[0]] = np.tile(x_at, len(y_at))[:, None]
        units[:, :, columns[1]] = np.repeat(y_at, len(x_at))[:, None]
        rows = self._means(units).reshape(len(y_at), len(x_at))
        return JointPartialDependence(
            tuple(x_at), tuple(y_at), tuple(tuple(float(value) for value in row) for row in rows)
        )

    def _background_points(self, count: int) -> Floats:
        """Return `count` copies of the points over which the other hyperparameters are averaged."""
        points = np.random.default_rng(0).random((_BACKGROUND_POINTS, self.space.dimension))
        return np.repeat(points[None], count, axis=0)

    def _means(self, units: Floats) -> Floats:
        values = self._at_units(units.reshape(-1, self.space.dimension))
        means = np.mean(values.reshape(len(units), -1), axis=1)
        return np.asarray(means * self._deviation + self._mean, dtype=np.float64)

    def _at_units(self, units: Floats) -> Floats:
        rows = self.space.spread(units)
        parts = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
        return np.concatenate([self._process.posterior(part).mean for part in parts])

    def _column(self, name: str) -> int:
        return next(column for column, axis in enumerate(self.space.axes) if axis.name == name)


def surface_of(
    ranges: Sequence[HyperparameterRange],
    points: Sequence[Mapping[str, str]],
    values: Sequence[float],
    *,
    is_maximized: bool,
) -> Surface | None:
    """Fit a surface to points, given as texts; None if there are too few or all have the same value."""
    space = Space(ranges)
    encoded = [space.encode(space.values(point)) for point in points]
    known = [(row, value) for row, value in zip(encoded, values, strict=True) if row is not None]
    measured = np.array([value for _, value in known], dtype=np.float64)
    if space.dimension == 0 or len(known) < MIN_FITTED_TRIALS or np.ptp(measured) == 0.0:
        return None
    return Surface(space, np.stack([row for row, _ in known]), _clip_divergent(measured, is_maximized=is_maximized))


def _clip_divergent(values: Floats, *, is_maximized: bool) -> Floats:
    """Clip values that are far worse than the others, as after a divergence, so that they do not hide the rest."""
    sign = -1.0 if is_maximized else 1.0
    losses = sign * values
    median = float(np.median(losses))
    distance = median - float(np.min(losses))
    return sign * np.minimum(losses, median + _MAX_DISTANCE * distance) if distance > 0.0 else values


def _half_mean_square(differences: Floats, variance: float) -> float:
    return float(0.5 * np.mean(differences**2) / variance) if variance > 0.0 else 0.0


def _importance(name: str, alone: float, with_others: float) -> Importance:
    """Clip the shares to 0 to 1: as Monte Carlo estimates they may be a little outside."""
    total = min(max(with_others, 0.0), 1.0)
    return Importance(name, min(max(alone, 0.0), total), total)
