"""Transfer learning: brings the trials of parent studies (source tasks) and of this study (target task) together.

One process can learn from all of them once two differences are removed:

- Scale. The first trials of the target task are where the source tasks were best. Standardised by themselves they
  would look average and contradict the source tasks. So they get the offset and the scale under which they are most
  likely for a process that was fitted to the source tasks alone.
- Shift. With other data, the optimum is often a little elsewhere: a lower learning rate, a larger network. Each numeric
  axis of a source task is the target's axis, warped with its ends fixed (see `kernel.warp`). One number per axis, the
  shift, is the logarithm of the first exponent and the negative logarithm of the second, so both halves of the axis
  are treated alike. The shifts are those with the highest likelihood under a prior that prefers small ones.

A few trials say nothing about the shift of an axis along which they do not differ, and the search does not explore
what it takes for known. So there are alternative shifts too, drawn from the Laplace approximation of the posterior.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from trainyard.insight.tuning.bayesian.gaussian_process import (
    MIN_NOISE_VARIANCE,
    GaussianProcess,
    Hyperparameters,
    inverse_cholesky,
    standardise,
)
from trainyard.insight.tuning.bayesian.history_arrays import HistoryArrays
from trainyard.insight.tuning.bayesian.kernel import (
    Array,
    Geometry,
    distance_gradient,
    evaluate_kernel,
    unwarp,
    warp,
    warp_exponent_gradients,
)
from trainyard.insight.tuning.bayesian.likelihood import fit_process
from trainyard.insight.tuning.bayesian.prior import Prior

# The scales of the target task that are tried, as logarithms relative to the expected one, and their prior.
_LOG_SCALE_OFFSETS = np.linspace(-3.0, 3.0, 121)
_LOG_SCALE_SIGMA = 1.0


class ScaledTargets(NamedTuple):
    """The targets of the target task, on the scale of the source tasks."""

    targets: Array
    # Without the terms that depend on the covariance alone.
    negative_log_likelihood: float


def scale_target_losses(arrays: HistoryArrays, targets: Array, *, root: Array) -> ScaledTargets:
    """Give the losses of the target task the offset and the scale of highest likelihood.

    `targets` are those of the source tasks, and zero for the target task; `root` is the inverse Cholesky factor of the
    covariance. For each scale, the best offset has a closed form.
    """
    is_target = arrays.is_target
    losses = standardise(arrays.losses[is_target])
    log_scales = _expected_log_scale(arrays) + _LOG_SCALE_OFFSETS
    offset_column = root @ is_target.astype(np.float64)
    whitened = (root @ targets)[:, None] + (root[:, is_target] @ losses)[:, None] * np.exp(log_scales)
    offsets = -(offset_column @ whitened) / (offset_column @ offset_column)
    residuals = whitened + offset_column[:, None] * offsets
    negative_log_likelihoods = (
        0.5 * np.sum(residuals * residuals, axis=0)
        - len(losses) * log_scales
        + 0.5 * (_LOG_SCALE_OFFSETS / _LOG_SCALE_SIGMA) ** 2
    )
    best = int(np.argmin(negative_log_likelihoods))
    return ScaledTargets(losses * np.exp(log_scales[best]) + offsets[best], float(negative_log_likelihoods[best]))


def _expected_log_scale(arrays: HistoryArrays) -> float:
    """Return the logarithm of the standard deviation of the target task's losses over that of the source tasks."""
    largest = float(np.max(np.abs(arrays.losses)))
    losses = arrays.losses / largest if largest > 0.0 else arrays.losses
    deviations = [float(np.std(losses[arrays.sources == source])) for source in np.unique(arrays.sources)]
    target, source = deviations[0], float(np.mean(deviations[1:]))
    return float(np.log(target / source)) if target > 0.0 and source > 0.0 else 0.0


# The prior of a shift: one standard deviation moves the middle of an axis by a tenth of it.
_SHIFT_SIGMA = 0.15
_MAX_SHIFT = 4.0 * _SHIFT_SIGMA
# The prior of the distance between two tasks that remains after the shift.
_LOG_TASK_DISTANCE_MEAN = -3.0
_LOG_TASK_DISTANCE_SIGMA = 1.5
_LOG_TASK_DISTANCE_BOUNDS = (-8.0, 1.0)
_MAX_OPTIMISER_STEPS = 40
# Alternative shifts are drawn in pairs: each with its opposite.
_SHIFT_PAIRS = 4
_FINITE_DIFFERENCE_STEP = 1e-4


class ShiftedPoints(NamedTuple):
    """All rows with those of the source tasks shifted: the most likely way, and alternatives."""

    rows: Array
    alternatives: tuple[Array, ...]


def shift_sources(
    arrays: HistoryArrays,
    targets: Array,
    geometry: Geometry,
    *,
    hyperparameters: Hyperparameters,
    most: int,
    generator: np.random.Generator,
) -> ShiftedPoints:
    """Shift the rows of each source task to where they would be in the target task.

    `targets` are those of the source tasks, and `hyperparameters` are fitted to them. The shift of each source task is
    fitted to at most `most` of its rows.
    """
    if not len(geometry.numeric):
        return ShiftedPoints(arrays.rows, ())
    shifted = [arrays.rows.copy() for _ in range(1 + 2 * _SHIFT_PAIRS)]
    for source in np.unique(arrays.sources[~arrays.is_target]):
        source_rows = np.flatnonzero(arrays.sources == source)
        subset = np.concatenate([np.flatnonzero(arrays.is_target), thin_evenly(source_rows, most)])
        pair = _TaskPair(arrays.select(subset), targets[subset], geometry, hyperparameters)
        at = np.ix_(source_rows, geometry.numeric)
        for rows, shift in zip(shifted, pair.shifts(generator), strict=True):
            rows[at] = unwarp(rows[at], shift, -shift)
    return ShiftedPoints(shifted[0], tuple(shifted[1:]))


def thin_evenly(indices: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return at most `most` of the indices, evenly spaced."""
    return indices[np.linspace(0, len(indices) - 1, min(len(indices), most)).round().astype(np.intp)]


class _TaskPair:
    """The target task and one source task."""

    def __init__(
        self, arrays: HistoryArrays, targets: Array, geometry: Geometry, hyperparameters: Hyperparameters
    ) -> None:
        self._arrays = arrays
        self._targets = targets
        self._geometry = geometry
        self._axis_parameters = hyperparameters.axis_parameters
        self._scale = float(np.exp(hyperparameters.log_signal_variance))
        self._noise_variances = np.exp(hyperparameters.log_noise_variance) + MIN_NOISE_VARIANCE + arrays.extra_noise
        self._target_points = arrays.rows[arrays.is_target][:, geometry.numeric]
        self._is_cross_task = (arrays.sources[:, None] != arrays.sources[None, :]).astype(np.float64)

    def shifts(self, generator: np.random.Generator) -> list[Array]:
        """Return the most likely shift, then alternatives from the Laplace approximation."""
        fitted = self._most_likely()
        values, vectors = np.linalg.eigh(_SHIFT_SIGMA**2 * self._hessian(fitted))
        root = _SHIFT_SIGMA * vectors / np.sqrt(np.maximum(values, 1.0))
        deviation = generator.standard_normal((_SHIFT_PAIRS, len(values))) @ root.T
        drawn = np.clip(fitted[:-1] + np.concatenate([deviation, -deviation]), -_MAX_SHIFT, _MAX_SHIFT)
        return [fitted[:-1], *drawn]

    def _most_likely(self) -> Array:
        axes = len(self._geometry.numeric)
        fitted = minimize(
            self.value_and_gradient,
            np.append(np.zeros(axes), _LOG_TASK_DISTANCE_MEAN),
            jac=True,
            bounds=[(-_MAX_SHIFT, _MAX_SHIFT)] * axes + [_LOG_TASK_DISTANCE_BOUNDS],
            method="L-BFGS-B",
            options={"maxiter": _MAX_OPTIMISER_STEPS},
        )
        return np.asarray(fitted.x)

    def _hessian(self, vector: Array) -> Array:
        """Return the Hessian by the shifts, from finite differences of the gradient."""
        _, gradient = self.value_and_gradient(vector)
        steps = _FINITE_DIFFERENCE_STEP * np.eye(len(vector))[:-1]
        changes = [self.value_and_gradient(vector + step)[1] - gradient for step in steps]
        hessian = np.array(changes)[:, :-1] / _FINITE_DIFFERENCE_STEP
        return np.asarray(0.5 * (hessian + hessian.T))

    def value_and_gradient(self, vector: Array) -> tuple[float, Array]:
        """Return the negative log posterior and its gradient, for the shifts followed by the log task distance."""
        shift, task_distance = vector[:-1], float(np.exp(vector[-1]))
        columns = self._columns(shift)
        embedded = self._geometry.embed(columns, self._axis_parameters)
        correlations, slopes = evaluate_kernel(embedded, embedded, geometry=self._geometry)
        scales = self._scale * np.exp(-task_distance * self._is_cross_task)
        root = inverse_cholesky(scales * correlations + 1.0, self._noise_variances)
        targets = self._targets.copy()
        targets[self._arrays.is_target], negative_log_likelihood = scale_target_losses(
            self._arrays, self._targets, root=root
        )
        solved = root.T @ (root @ targets)
        by_correlation = 0.5 * (root.T @ root - np.outer(solved, solved)) * scales
        by_shift = self._by_shift(by_correlation * slopes, columns, embedded, shift)
        by_task_distance = -task_distance * float(np.sum(by_correlation * correlations * self._is_cross_task))
        deviation = vector - np.append(np.zeros(len(shift)), _LOG_TASK_DISTANCE_MEAN)
        deviation[:-1] /= _SHIFT_SIGMA
        deviation[-1] /= _LOG_TASK_DISTANCE_SIGMA
        value = negative_log_likelihood - float(np.sum(np.log(np.diag(root)))) + 0.5 * float(deviation @ deviation)
        gradient = np.append(
            by_shift + deviation[:-1] / _SHIFT_SIGMA, by_task_distance + deviation[-1] / _LOG_TASK_DISTANCE_SIGMA
        )
        return value, gradient

    def _columns(self, shift: Array) -> Array:
        """Return the columns of all rows, those of the target task shifted to the source task."""
        rows = self._arrays.rows.copy()
        rows[np.ix_(self._arrays.is_target, self._geometry.numeric)] = warp(self._target_points, shift, -shift)
        return self._geometry.columns(rows)

    def _by_shift(self, force: Array, columns: Array, embedded: Array, shift: Array) -> Array:
        at = self._geometry.numeric_columns
        by_embedded = np.zeros_like(embedded)
        by_embedded[:, at] = 2.0 * distance_gradient(force, embedded[:, at], embedded[:, at])
        by_axis = self._geometry.gradient_by_axis(by_embedded, columns, axis_parameters=self._axis_parameters)[
            self._arrays.is_target
        ]
        by_first, by_second = warp_exponent_gradients(self._target_points, shift, -shift)
        return np.asarray(np.sum(by_axis[:, self._geometry.numeric] * (by_first - by_second), axis=0))


# The correlation of two tasks is exp(-distance).
_TASK_DISTANCE = 0.5
# With fewer trials of the target task, negative transfer cannot be told from chance.
_MIN_TARGET_TRIALS = 5
_LOG_LIKELIHOOD_MARGIN = 1.0  # nats
# Limits the rows of source tasks, and so the time.
_MAX_SOURCE_ROWS = 100


class AlignedTasks(NamedTuple):
    """The history with the source tasks shifted to the target task, and the target of each row.

    The targets are the standardised losses of each source task, and the scaled losses of the target task.
    `alternatives` has the rows under other possible shifts.
    """

    arrays: HistoryArrays
    targets: Array
    alternatives: tuple[Array, ...] = ()


def align_tasks(
    arrays: HistoryArrays, geometry: Geometry, *, prior: Prior, generator: np.random.Generator
) -> AlignedTasks:
    """Remove the differences in scale and shift between the target task and its source tasks."""
    if np.all(arrays.is_target):
        return AlignedTasks(arrays, standardise(arrays.losses))
    targets = np.zeros(len(arrays.losses))
    for source in np.unique(arrays.sources[~arrays.is_target]):
        targets[arrays.sources == source] = standardise(arrays.losses[arrays.sources == source])
    if not np.any(arrays.is_target):
        return AlignedTasks(arrays, targets)
    fitted = _fit_sources(arrays, targets, geometry, prior=prior)
    shifted = shift_sources(
        arrays, targets, geometry, hyperparameters=fitted, most=_MAX_SOURCE_ROWS, generator=generator
    )
    arrays = replace(arrays, rows=shifted.rows)
    targets[arrays.is_target] = scale_target_losses(
        arrays, targets, root=_inverse_cholesky_of(arrays, geometry, fitted)
    ).targets
    return AlignedTasks(arrays, targets, shifted.alternatives)


def has_negative_transfer(process: GaussianProcess, *, prior: Prior) -> bool:
    """Whether a process, whose last axis is the task, would predict the target task better without the source tasks.

    Compares leave-one-out predictions, once the target task has enough trials.
    """
    is_target = process.points[:, -1] == 0.0
    targets = process.targets[is_target]
    if len(targets) < _MIN_TARGET_TRIALS or np.ptp(targets) == 0.0:
        return False
    spread = float(np.std(targets))
    geometry = Geometry(process.geometry.categories[:-1])
    rows, standard = process.points[is_target, :-1], (targets - np.mean(targets)) / spread
    target_only = fit_process(
        geometry, prior, points=rows, targets=standard, extra_noise=process.extra_noise[is_target]
    )
    without_sources = _log_density(standard, *target_only.leave_one_out()) - len(targets) * np.log(spread)
    with_sources = process.leave_one_out()
    return bool(
        without_sources
        > _log_density(targets, with_sources.mean[is_target], with_sources.variance[is_target]) + _LOG_LIKELIHOOD_MARGIN
    )


def _log_density(targets: Array, means: Array, variances: Array) -> float:
    """Return the log likelihood of the targets under independent normal predictions, without a constant."""
    return float(-0.5 * np.sum(np.log(variances) + (targets - means) ** 2 / variances))


def _fit_sources(arrays: HistoryArrays, targets: Array, geometry: Geometry, *, prior: Prior) -> Hyperparameters:
    subset = thin_evenly(np.flatnonzero(~arrays.is_target), _MAX_SOURCE_ROWS)
    process = fit_process(
        geometry, prior, points=arrays.rows[subset], targets=targets[subset], extra_noise=arrays.extra_noise[subset]
    )
    return process.hyperparameters


def _inverse_cholesky_of(arrays: HistoryArrays, geometry: Geometry, fitted: Hyperparameters) -> Array:
    """Return the inverse Cholesky factor of the covariance of all rows, with the source tasks' hyperparameters."""
    embedded = geometry.embed(geometry.columns(arrays.rows), fitted.axis_parameters)
    distance = _TASK_DISTANCE * (arrays.sources[:, None] != arrays.sources[None, :])
    covariance = evaluate_kernel(embedded, embedded, geometry=geometry).correlations * np.exp(
        fitted.log_signal_variance - distance
    )
    return inverse_cholesky(
        covariance + 1.0, np.exp(fitted.log_noise_variance) + MIN_NOISE_VARIANCE + arrays.extra_noise
    )
