"""How an objective depends on hyperparameters, as far as trials tell: a smooth surface over the whole space.

The surface is the mean of the Gaussian process that the Bayesian strategy uses too. Of it, two things are read: the
objective along one or two hyperparameters, averaged over all others, and how much each of them matters. The latter are
Sobol's indices, the shares of a functional analysis of variance: how much of the surface's variance goes with one
hyperparameter alone, and how much with it and its interplay with others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainyard.foundation.tuning import ParameterRange
from trainyard.insight.tuning.bayesian import fitting
from trainyard.insight.tuning.bayesian.gp import GaussianProcess, Hyperparameters
from trainyard.insight.tuning.bayesian.kernels import geometry_of
from trainyard.insight.tuning.rulers import Ruler
from trainyard.insight.tuning.scales import Floats
from trainyard.insight.tuning.space import Space

FEWEST = 5  # trials of which at least one differs, below which there is nothing to fit

_SAMPLES = 1024  # of the space, for shares of variance
_AVERAGED = 128  # points over which the other hyperparameters are averaged
_CHUNK = 4096  # points looked at in one go, so that 500 trials need some megabytes only
_FARTHEST = 4.0  # distances from the median to the best, beyond which a worse value is not told from a still worse one


@dataclass(frozen=True, slots=True)
class Importance:
    """The share of the objective's variance that goes with a hyperparameter: alone, and with its interplay too."""

    name: str
    alone: float
    with_others: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The objective at places along a ruler, from 0 to 1, averaged over all other hyperparameters."""

    places: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Landscape:
    """The same over two rulers: a row of values for each place of the second."""

    x_places: tuple[float, ...]
    y_places: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]


class Surface:
    """The objective over the space of some ranges, fitted to points whose objective is known."""

    def __init__(self, space: Space, rows: Floats, values: Floats) -> None:
        self.space = space
        self.rulers = tuple(Ruler(axis) for axis in space.axes)
        self._mean, self._deviation = float(np.mean(values)), float(np.std(values))
        geometry = geometry_of([axis.count for axis in space.axes], [axis.is_categorical for axis in space.axes])
        targets = (values - self._mean) / self._deviation
        likelihood = fitting.Likelihood(geometry, fitting.Beliefs(), points=rows, targets=targets)
        found = fitting.likeliest(likelihood)
        self._process = GaussianProcess(geometry, Hyperparameters.of(found, geometry), points=rows, targets=targets)

    @cached_property
    def explained(self) -> float:
        """The share of the trials' variance that it foretells, each from all others: 1 is all of it, 0 is nothing."""
        errors = self._process.leave_one_out().mean - self._process.targets
        return float(np.clip(1.0 - np.mean(errors**2), 0.0, 1.0))

    def importances(self) -> list[Importance]:
        """How much each hyperparameter matters, the most important first; the same each time."""
        generator = np.random.default_rng(0)
        first, second = generator.random((2, _SAMPLES, self.space.dimension))
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

    def profile(self, name: str, *, places: int = 41) -> Profile:
        """The objective along one hyperparameter."""
        column = self._column(name)
        ruler = self.rulers[column]
        at = ruler.places(places)
        units = self._averaged(len(at))
        units[:, :, column] = np.array(at)[:, None]
        means = self._means(units)
        return Profile(tuple(at), tuple(float(value) for value in means))

    def landscape(self, x: str, y: str, *, places: int = 25) -> Landscape:
        """The objective over two hyperparameters."""
        columns = self._column(x), self._column(y)
        x_at, y_at = (self.rulers[column].places(places) for column in columns)
        units = self._averaged(len(x_at) * len(y_at))
        units[:, :, columns[0]] = np.tile(x_at, len(y_at))[:, None]
        units[:, :, columns[1]] = np.repeat(y_at, len(x_at))[:, None]
        rows = self._means(units).reshape(len(y_at), len(x_at))
        return Landscape(tuple(x_at), tuple(y_at), tuple(tuple(float(value) for value in row) for row in rows))

    def _averaged(self, count: int) -> Floats:
        """For each of so many places, the same points over which the others are averaged."""
        points = np.random.default_rng(0).random((_AVERAGED, self.space.dimension))
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
    ranges: Sequence[ParameterRange],
    points: Sequence[Mapping[str, str]],
    values: Sequence[float],
    *,
    is_maximized: bool,
) -> Surface | None:
    """The surface through points, given as texts; None where there are too few, or all are of one value."""
    space = Space(ranges)
    encoded = [space.encode(space.values(point)) for point in points]
    known = [(row, value) for row, value in zip(encoded, values, strict=True) if row is not None]
    measured = np.array([value for _, value in known], dtype=np.float64)
    if space.dimension == 0 or len(known) < FEWEST or np.ptp(measured) == 0.0:
        return None
    return Surface(space, np.stack([row for row, _ in known]), _tamed(measured, is_maximized=is_maximized))


def _tamed(values: Floats, *, is_maximized: bool) -> Floats:
    """Values of which none is so much worse than the others that only this would be seen, as after a divergence."""
    sign = -1.0 if is_maximized else 1.0
    losses = sign * values
    median = float(np.median(losses))
    reach = median - float(np.min(losses))
    return sign * np.minimum(losses, median + _FARTHEST * reach) if reach > 0.0 else values


def _half_mean_square(differences: Floats, variance: float) -> float:
    return float(0.5 * np.mean(differences**2) / variance) if variance > 0.0 else 0.0


def _importance(name: str, alone: float, with_others: float) -> Importance:
    """Shares are estimated by chance, so that they may come out a little below nothing or above all."""
    total = min(max(with_others, 0.0), 1.0)
    return Importance(name, min(max(alone, 0.0), total), total)
