"""Learning-curve extrapolation: forecasts the last value of a curve from its beginning and from complete curves.

The model of a curve, where less is better, is

    z(t) = final + gain g(t) + drift(t) + noise

where g is one of many basis shapes that end at 0. Some are typical of trainings: power laws, exponentials, logistic
curves in the logarithm of time, which stay flat and then drop, a straight line, and a constant. The others are the
complete curves themselves, at their own pace and at others: if all trainings of a study drop when their learning rate
does, or get worse before they get better, these shapes show it. `drift` is an autoregressive process for what no shape
explains, so that a curve that fits well for a while is not trusted too far.

Given a shape and the sizes of the noise and of the drift, everything is Gaussian, so the forecast and the evidence have
a closed form. The result is the mixture over all combinations, weighted by how well each explains this curve and
explained the complete ones. No iterative fit is needed, so none can get stuck.
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

# Larger losses are ignored, because computing with them could overflow.
_MAX_LOSS = 1e150
# The largest distance from where complete curves end, in units of their range.
_MAX_DISTANCE = 4.0
# A longer curve is averaged down to this many points of time.
_MAX_BINS = 40
_MIN_NOISE = 0.01  # times the range of a complete curve
_NOISE_FACTORS = (0.3, 1.0, 3.0)  # times the noise of the complete curves
_DRIFTS = (0.05, 0.2)  # times the range of a complete curve
_DRIFT_CORRELATION_LENGTH = 0.3  # times the length of a curve
# Complete curves serve as shapes at each of these paces.
_PACES = (0.6, 1.0, 1.6)
# The prior weights of the shapes count as much as this many complete curves.
_PRIOR_CURVES = 4.0
# Finals and gains differ more than the complete curves show, because trials that were ended early are missing there.
_DEVIATION_FACTOR = 1.5
# The median absolute deviation of a normal distribution, in standard deviations.
_MAD_OF_NORMAL = 0.6745

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LossScale:
    """Shifts and scales losses so that complete curves end at about 0 and have a range of about 1.

    A loss far above all complete curves has diverged, and its size says nothing; it is clipped to `_MAX_DISTANCE`. A
    report that is not finite counts as the one before it.
    """

    center: float
    range: float

    def apply(self, losses: Sequence[float]) -> Array:
        max_distance = _MAX_DISTANCE * self.range
        values = np.asarray(_fill_gaps(losses, first=self.center + max_distance))
        bounded = np.clip(values, self.center - max_distance, self.center + max_distance)
        return np.asarray((bounded - self.center) / self.range)

    def invert(self, value: float) -> float:
        return self.center + self.range * value


@dataclass(frozen=True, slots=True)
class CurveForecast:
    """The last value of a curve, as a mixture of normal distributions on the scale of the model."""

    weights: Array
    means: Array
    deviations: Array
    scale: LossScale

    @property
    def mean(self) -> float:
        return self.scale.invert(float(self.weights @ self.means))

    @property
    def deviation(self) -> float:
        distances = self.means - float(self.weights @ self.means)
        return self.scale.range * math.sqrt(float(self.weights @ (self.deviations**2 + distances**2)))

    def probability_below(self, loss: float) -> float:
        return float(self.weights @ ndtr((self.scale.apply([loss])[0] - self.means) / self.deviations))


@dataclass(frozen=True, slots=True)
class CurvePrior:
    """The prior of the final value and of the gain."""

    means: tuple[float, float]
    deviations: tuple[float, float]


@dataclass(frozen=True, slots=True)
class CurveModel:
    """A model of the curves of a study, learned from the complete ones."""

    scale: LossScale
    noise: float
    prior: CurvePrior
    # One shape per row, from the first report to the last.
    shapes: Array
    # One row per pair of noise and drift, one column per shape.
    log_weights: Array

    @property
    def length(self) -> int:
        return int(self.shapes.shape[1])

    def forecast(self, losses: Sequence[float]) -> CurveForecast:
        """Forecast the last value of a curve that will be as long as the longest complete one."""
        fits = self.fit_shapes(self.scale.apply(losses)[None, :])
        log_weights = self.log_weights + np.stack([fit.log_evidence[0] for fit in fits])
        weights = np.exp(log_weights - logsumexp(log_weights))
        means = np.stack([fit.means[0] for fit in fits])
        deviations = np.sqrt(np.stack([fit.variances for fit in fits]))
        return CurveForecast(weights.ravel(), means.ravel(), deviations.ravel(), self.scale)

    def fit_shapes(self, curves: Array) -> list["CurveFit"]:
        """Fit every shape to scaled curves of one length, for each size of the noise and of the drift."""
        reports = curves.shape[1]
        bins = _bins(reports)
        curves, shapes = bins.means(curves), bins.means(self.shapes[:, :reports])
        return [
            _fit(curves, shapes, self, bins=bins, noise=noise * self.noise, drift=drift)
            for noise in _NOISE_FACTORS
            for drift in _DRIFTS
        ]


@lru_cache(maxsize=8)
def fit_curve_model(curves: tuple[tuple[float, ...], ...]) -> CurveModel:
    """Learn a model from complete curves; the longest one gives the length of all."""
    length = max(len(curve) for curve in curves)
    scale = _scale(curves)
    complete = [_extend(scale.apply(curve), length) for curve in curves]
    typical, observed = _typical_shapes(length), [_shape(curve, pace) for curve in complete for pace in _PACES]
    model = CurveModel(
        scale=scale,
        noise=max(_MIN_NOISE, float(np.median([_noise(curve) for curve in complete]))),
        prior=_curve_prior(complete),
        shapes=np.stack([*typical, *observed]),
        log_weights=_prior_log_weights(len(typical), len(observed)),
    )
    return replace(model, log_weights=_posterior_log_weights(model, complete))


def _scale(curves: Sequence[Sequence[float]]) -> LossScale:
    finite = [[value for value in curve if abs(value) < _MAX_LOSS] or [0.0] for curve in curves]
    center = float(np.median([values[-1] for values in finite]))
    extent = float(np.median([max(values) - min(values) for values in finite]))
    spread = max(abs(values[-1] - center) for values in finite)
    return LossScale(center, max(extent or spread, 1e-9 * abs(center), 1e-200))


def _fill_gaps(losses: Sequence[float], *, first: float) -> list[float]:
    filled = itertools.accumulate(losses, lambda before, loss: loss if math.isfinite(loss) else before, initial=first)
    return list(filled)[1:]


def _extend(curve: Array, length: int) -> Array:
    """Extend a curve that ended sooner by its last value: its program saw nothing more to gain."""
    return np.concatenate([curve, np.full(length - len(curve), curve[-1])])


def _typical_shapes(length: int) -> list[Array]:
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
    """Return the shape of a complete curve that runs `pace` times as fast."""
    times = np.arange(len(curve))
    paced = np.interp(pace * times, times, curve)
    return np.asarray((paced - paced[-1]) / (float(np.ptp(curve)) or 1.0))


def _noise(curve: Array) -> float:
    """Estimate the noise of single reports from the second differences of a curve."""
    second_differences = np.abs(np.diff(curve, 2))
    return float(np.median(second_differences)) / _MAD_OF_NORMAL / math.sqrt(6) if len(second_differences) else 0.0


def _curve_prior(curves: Sequence[Array]) -> CurvePrior:
    finals = np.array([curve[-1] for curve in curves])
    gains = np.array([curve[0] - curve[-1] for curve in curves])
    return CurvePrior(
        means=(float(np.median(finals)), float(np.median(gains))),
        deviations=(_DEVIATION_FACTOR * float(finals.std()) + 0.3, _DEVIATION_FACTOR * float(gains.std()) + 0.3),
    )


def _prior_log_weights(typical: int, observed: int) -> Array:
    """Return the prior weights: half for the typical shapes, half for the curves of this study."""
    shapes = np.concatenate([np.full(typical, 0.5 / typical), np.full(observed, 0.5 / observed)])
    return np.log(np.tile(shapes / (len(_NOISE_FACTORS) * len(_DRIFTS)), (len(_NOISE_FACTORS) * len(_DRIFTS), 1)))


def _posterior_log_weights(model: CurveModel, curves: Sequence[Array]) -> Array:
    """Return the mean weights for the complete curves, each fitted without its own shapes."""
    log_evidence = np.stack([fit.log_evidence for fit in model.fit_shapes(np.stack(curves))], axis=1)
    total = _PRIOR_CURVES * np.exp(model.log_weights)
    typical = len(model.shapes) - len(_PACES) * len(curves)
    for index, own_log_evidence in enumerate(log_evidence):
        log_weights = model.log_weights + own_log_evidence
        own = typical + index * len(_PACES)
        log_weights[:, own : own + len(_PACES)] = -np.inf
        total += np.exp(log_weights - logsumexp(log_weights))
    return np.asarray(np.log(total / total.sum()))


@dataclass(frozen=True, slots=True)
class _Bins:
    """Groups of consecutive reports that are averaged, so that long curves cost no more than short ones."""

    starts: NDArray[np.int64]
    counts: Array
    # The middle of each group.
    times: Array

    def means(self, rows: Array) -> Array:
        return np.asarray(np.add.reduceat(rows, self.starts, axis=1) / self.counts)


def _bins(reports: int) -> _Bins:
    edges = np.linspace(0, reports, min(reports, _MAX_BINS) + 1).astype(np.int64)
    return _Bins(edges[:-1], np.diff(edges).astype(np.float64), (edges[:-1] + edges[1:] + 1) / 2)


@dataclass(frozen=True, slots=True)
class CurveFit:
    """The fit of each shape to each curve, for one size of the noise and one of the drift."""

    # Curves by shapes.
    log_evidence: Array
    # Of the last value, curves by shapes.
    means: Array
    # Of the last value, by shapes.
    variances: Array


def _fit(curves: Array, shapes: Array, model: CurveModel, *, bins: _Bins, noise: float, drift: float) -> CurveFit:
    """Regress curves on a constant and on each shape, with a Gaussian prior and correlated errors."""
    correlation_length = _DRIFT_CORRELATION_LENGTH * model.length
    distances = np.abs(bins.times[:, None] - bins.times[None, :])
    factor = cho_factor(
        drift**2 * np.exp(-distances / correlation_length) + np.diag(noise**2 / bins.counts), check_finite=False
    )
    to_end = drift**2 * np.exp(-(model.length - bins.times) / correlation_length)
    solved_one = cho_solve(factor, np.ones(len(bins.times)), check_finite=False)
    solved_end = cho_solve(factor, to_end, check_finite=False)
    solved_shapes = cho_solve(factor, shapes.T, check_finite=False).T
    solved_curves = cho_solve(factor, curves.T, check_finite=False).T

    (final, gain), (final_spread, gain_spread) = model.prior.means, model.prior.deviations
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
    return CurveFit(
        log_evidence=-0.5 * (sizes + misfit),
        means=finals * level + gains * slope + (curves @ solved_end)[:, None],
        variances=drift**2 - to_end @ solved_end + noise**2 + uncertain,
    )
