"""Where a learning curve leads, from its beginning and from curves that are whole.

A curve, of which less is better, is taken for

    z(t) = final + gain g(t) + drift(t) + noise

with g one of many shapes that end at 0. Some are the usual ones of trainings: power laws, exponentials, logistic
curves in the logarithm of time, which stay flat and then drop, a straight line, and one that stays as it is. The others
are those of the whole curves, as they are and at other paces: where all of a study's trainings drop when their learning
rate does, or get worse before they get better, those show it. `drift` is a process with a memory, for what no shape
explains, so that a curve that fits well for a while is not trusted too far.

Given a shape, the size of the noise and that of the drift, everything is Gaussian, and both where the curve leads and
how well it is explained are known in closed form. The forecast is the mixture of all of them, each weighted by how well
it explains this curve and explained the whole ones. Nothing is fitted step by step, so there is nothing to get stuck
in.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp, ndtr

_LARGEST = 1e150  # loss that is computed with
_FARTHEST = 4.0  # from where whole curves end, in their range
_FINEST = 40  # points of time that a curve is reduced to
_LEAST_NOISE = 0.01  # times the range of a whole curve
_NOISES = (0.3, 1.0, 3.0)  # times what the whole curves show
_DRIFTS = (0.05, 0.2)  # times the range of a whole curve
_MEMORY = 0.3  # of the drift, as a part of the length
_PACES = (0.6, 1.0, 1.6)  # at which the whole curves may be gone through again
_TRUST = 4.0  # how many whole curves the weights from before any was seen are worth
_WIDENING = 1.5  # of how finals and gains differ: trials that were ended early are not among the whole curves

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scale:
    """Brings losses to where the whole curves end at about 0 and have a range of about 1.

    What is far above all that is known has diverged, and by how much says nothing; it is brought down to `_FARTHEST`.
    A report that is not finite is taken for the one before it.
    """

    center: float
    range: float

    def apply(self, losses: Sequence[float]) -> Array:
        farthest = _FARTHEST * self.range
        values = np.asarray(_without_holes(losses, first=self.center + farthest))
        bounded = np.clip(values, self.center - farthest, self.center + farthest)
        return np.asarray((bounded - self.center) / self.range)

    def undo(self, value: float) -> float:
        return self.center + self.range * value


@dataclass(frozen=True, slots=True)
class Forecast:
    """The last value of a curve, as a mixture of normal distributions, all brought to scale."""

    weights: Array
    means: Array
    deviations: Array
    scale: Scale

    @property
    def mean(self) -> float:
        return self.scale.undo(float(self.weights @ self.means))

    @property
    def deviation(self) -> float:
        apart = self.means - float(self.weights @ self.means)
        return self.scale.range * math.sqrt(float(self.weights @ (self.deviations**2 + apart**2)))

    def chance_below(self, loss: float) -> float:
        return float(self.weights @ ndtr((self.scale.apply([loss])[0] - self.means) / self.deviations))


@dataclass(frozen=True, slots=True)
class Expectation:
    """Of the final value and of the gain, before a report is seen."""

    means: tuple[float, float]
    deviations: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Model:
    """What whole curves teach about one that is not."""

    scale: Scale
    noise: float
    expected: Expectation
    shapes: Array  # each in a row, from the first report to the last
    log_weights: Array  # of pairs of a noise and a drift, by shapes

    @property
    def length(self) -> int:
        return int(self.shapes.shape[1])

    def forecast(self, losses: Sequence[float]) -> Forecast:
        """The last value of a curve that is as long as the longest one known."""
        fits = self.explain(self.scale.apply(losses)[None, :])
        log_weights = self.log_weights + np.stack([fit.evidence[0] for fit in fits])
        weights = np.exp(log_weights - logsumexp(log_weights))
        means = np.stack([fit.means[0] for fit in fits])
        deviations = np.sqrt(np.stack([fit.variances for fit in fits]))
        return Forecast(weights.ravel(), means.ravel(), deviations.ravel(), self.scale)

    def explain(self, curves: Array) -> list["Fit"]:
        """What each shape makes of scaled curves of one length, under each size of the noise and of the drift."""
        reports = curves.shape[1]
        bins = _bins(reports)
        curves, shapes = bins.means(curves), bins.means(self.shapes[:, :reports])
        return [
            _fit(curves, shapes, self, bins=bins, noise=noise * self.noise, drift=drift)
            for noise in _NOISES
            for drift in _DRIFTS
        ]


@lru_cache(maxsize=8)
def learn(curves: tuple[tuple[float, ...], ...]) -> Model:
    """Take from whole curves how such curves go; the longest one says how long they are."""
    length = max(len(curve) for curve in curves)
    scale = _scale(curves)
    whole = [_held(scale.apply(curve), length) for curve in curves]
    usual, shown = _usual_shapes(length), [_shape(curve, pace) for curve in whole for pace in _PACES]
    model = Model(
        scale=scale,
        noise=max(_LEAST_NOISE, float(np.median([_noise(curve) for curve in whole]))),
        expected=_expectation(whole),
        shapes=np.stack([*usual, *shown]),
        log_weights=_first_weights(len(usual), len(shown)),
    )
    return replace(model, log_weights=_weights(model, whole))


def _scale(curves: Sequence[Sequence[float]]) -> Scale:
    finite = [[value for value in curve if abs(value) < _LARGEST] or [0.0] for curve in curves]
    center = float(np.median([values[-1] for values in finite]))
    extent = float(np.median([max(values) - min(values) for values in finite]))
    spread = max(abs(values[-1] - center) for values in finite)
    return Scale(center, max(extent or spread, 1e-9 * abs(center), 1e-200))


def _without_holes(losses: Sequence[float], *, first: float) -> list[float]:
    filled = itertools.accumulate(losses, lambda before, loss: loss if math.isfinite(loss) else before, initial=first)
    return list(filled)[1:]


def _held(curve: Array, length: int) -> Array:
    """A curve that ended sooner stays as it ended: its program saw nothing more to gain."""
    return np.concatenate([curve, np.full(length - len(curve), curve[-1])])


def _usual_shapes(length: int) -> list[Array]:
    times = np.arange(1, length + 1, dtype=np.float64)
    part = times / length
    falling = [
        *(times**-power for power in (0.3, 1.0, 2.0)),
        *(np.exp(-part / pace) for pace in (0.03, 0.06, 0.12, 0.25, 0.5, 1.0)),
        *(1 / (1 + (part / middle) ** slope) for middle in (0.15, 0.3, 0.5, 0.75) for slope in (3, 8)),
        -np.log(times),
        -times,
    ]
    return [np.zeros(length), *((shape - shape[-1]) / (shape[0] - shape[-1]) for shape in falling)]


def _shape(curve: Array, pace: float) -> Array:
    """How a whole curve goes, and how it would have gone so many times faster."""
    times = np.arange(len(curve))
    paced = np.interp(pace * times, times, curve)
    return np.asarray((paced - paced[-1]) / (float(np.ptp(curve)) or 1.0))


def _noise(curve: Array) -> float:
    """How far single reports are off, from how they differ from the middle of their neighbours."""
    bends = np.abs(np.diff(curve, 2))
    return float(np.median(bends)) / 0.6745 / math.sqrt(6) if len(bends) else 0.0


def _expectation(curves: Sequence[Array]) -> Expectation:
    finals = np.array([curve[-1] for curve in curves])
    gains = np.array([curve[0] - curve[-1] for curve in curves])
    return Expectation(
        means=(float(np.median(finals)), float(np.median(gains))),
        deviations=(_WIDENING * float(finals.std()) + 0.3, _WIDENING * float(gains.std()) + 0.3),
    )


def _first_weights(usual: int, shown: int) -> Array:
    """Half for what is usual, and half for what this study has shown."""
    shapes = np.concatenate([np.full(usual, 0.5 / usual), np.full(shown, 0.5 / shown)])
    return np.log(np.tile(shapes / (len(_NOISES) * len(_DRIFTS)), (len(_NOISES) * len(_DRIFTS), 1)))


def _weights(model: Model, curves: Sequence[Array]) -> Array:
    """What the weights are on average for whole curves, each explained by other shapes than its own."""
    evidence = np.stack([fit.evidence for fit in model.explain(np.stack(curves))], axis=1)
    total = _TRUST * np.exp(model.log_weights)
    usual = len(model.shapes) - len(_PACES) * len(curves)
    for index, own_evidence in enumerate(evidence):
        log_weights = model.log_weights + own_evidence
        own = usual + index * len(_PACES)
        log_weights[:, own : own + len(_PACES)] = -np.inf
        total += np.exp(log_weights - logsumexp(log_weights))
    return np.asarray(np.log(total / total.sum()))


@dataclass(frozen=True, slots=True)
class _Bins:
    """Reports one after another that are taken together, so that long curves cost no more than short ones."""

    starts: NDArray[np.int64]
    counts: Array
    times: Array  # in the middle

    def means(self, rows: Array) -> Array:
        return np.asarray(np.add.reduceat(rows, self.starts, axis=1) / self.counts)


def _bins(reports: int) -> _Bins:
    edges = np.linspace(0, reports, min(reports, _FINEST) + 1).astype(np.int64)
    return _Bins(edges[:-1], np.diff(edges).astype(np.float64), (edges[:-1] + edges[1:] + 1) / 2)


@dataclass(frozen=True, slots=True)
class Fit:
    """What each shape makes of each curve, under one size of the noise and one of the drift."""

    evidence: Array  # its logarithm, of curves by shapes
    means: Array  # of the last value, of curves by shapes
    variances: Array  # of the last value, by shapes


def _fit(curves: Array, shapes: Array, model: Model, *, bins: _Bins, noise: float, drift: float) -> Fit:
    """Regress curves on a constant and on each shape, with a Gaussian prior and errors that are correlated."""
    memory = _MEMORY * model.length
    apart = np.abs(bins.times[:, None] - bins.times[None, :])
    factor = cho_factor(drift**2 * np.exp(-apart / memory) + np.diag(noise**2 / bins.counts), check_finite=False)
    to_end = drift**2 * np.exp(-(model.length - bins.times) / memory)
    solved_one = cho_solve(factor, np.ones(len(bins.times)), check_finite=False)
    solved_end = cho_solve(factor, to_end, check_finite=False)
    solved_shapes = cho_solve(factor, shapes.T, check_finite=False).T
    solved_curves = cho_solve(factor, curves.T, check_finite=False).T

    (final, gain), (final_spread, gain_spread) = model.expected.means, model.expected.deviations
    first, second = final_spread**-2 + solved_one.sum(), gain_spread**-2 + (shapes * solved_shapes).sum(axis=1)
    both = shapes @ solved_one
    determinant = first * second - both**2
    right = (final / final_spread**2 + curves @ solved_one)[:, None]
    right_gain = gain / gain_spread**2 + curves @ solved_shapes.T
    finals = (second * right - both * right_gain) / determinant
    gains = (first * right_gain - both * right) / determinant

    sizes = 2 * np.log(np.diag(factor[0])).sum() + np.log(determinant * (final_spread * gain_spread) ** 2)
    misfit = (curves * solved_curves).sum(axis=1)[:, None] - right * finals - right_gain * gains
    level, slope = 1 - solved_one @ to_end, -shapes @ solved_end
    uncertain = (level**2 * second - 2 * level * slope * both + slope**2 * first) / determinant
    return Fit(
        evidence=-0.5 * (sizes + misfit),
        means=finals * level + gains * slope + (curves @ solved_end)[:, None],
        variances=drift**2 - to_end @ solved_end + noise**2 + uncertain,
    )
