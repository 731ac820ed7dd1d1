"""The surrogate model: a Gaussian process fitted to the history, with fantasies for the pending trials."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainyard.insight.tuning.bayesian.gaussian_process import GaussianProcess
from trainyard.insight.tuning.bayesian.history_arrays import HistoryArrays
from trainyard.insight.tuning.bayesian.kernel import Array, Geometry
from trainyard.insight.tuning.bayesian.likelihood import fit_process
from trainyard.insight.tuning.bayesian.outliers import fit_without_outliers
from trainyard.insight.tuning.bayesian.prior import Prior
from trainyard.insight.tuning.bayesian.transfer import align_tasks, has_negative_transfer

# Once shifted, source tasks are expected to differ little from the target task.
_LOG_TASK_WEIGHT_MEAN = -5.0
# The extra noise variance of failures and successes in source tasks.
_SOURCE_FAILURE_NOISE = 0.5
_FEASIBILITY_PRIOR = Prior(log_noise_variance=-3.0, log_noise_variance_sigma=0.5)


@dataclass(frozen=True, slots=True)
class SurrogateLimits:
    """Limits on the work for one suggestion, which bound its time."""

    # Observations that the hyperparameters are fitted to.
    max_fit_observations: int = 120
    # Observations that a process is conditioned on.
    max_observations: int = 400
    # Sampled outcomes of the pending trials, shared out among the alternative processes,
    fantasies: int = 16
    # but at least this many for each.
    min_fantasies: int = 2


_PRIOR = Prior()
_DEFAULT_LIMITS = SurrogateLimits()


class SurrogateModel:
    """Fits a process to the history.

    If a study has parents, the task of a point is one more axis. Its weight is fitted like any other, and tells how
    little the source tasks say about this study. Source tasks that mislead (negative transfer) are left out.
    """

    def __init__(
        self,
        geometry: Geometry,
        arrays: HistoryArrays,
        *,
        generator: np.random.Generator,
        prior: Prior = _PRIOR,
        limits: SurrogateLimits = _DEFAULT_LIMITS,
    ) -> None:
        self._geometry = geometry
        self._arrays = arrays
        self._prior = prior
        self._limits = limits
        self._generator = generator
        self._alternatives: list[Array] = []
        self.has_sources = not bool(np.all(arrays.is_target))

    def fit(self) -> GaussianProcess:
        """Fit the process to the history."""
        self._arrays, targets, alternatives = align_tasks(
            self._arrays, self._geometry, prior=self._prior, generator=self._generator
        )
        known = self._thin(targets, self._limits.max_observations)
        self._alternatives = [self._with_sources(rows)[known] for rows in alternatives]
        process = self._fit(
            self._with_sources(self._arrays.rows)[known], targets[known], self._arrays.extra_noise[known]
        )
        process = fit_without_outliers(process, self._fit, prior=self._prior_with_sources())
        if not self.has_sources or not has_negative_transfer(process, prior=self._prior):
            return process
        self._arrays, self.has_sources = self._arrays.target_only(), False
        return self.fit()

    def alternative_processes(self, process: GaussianProcess) -> list[GaussianProcess]:
        """Return the process, and the same with the source tasks under each alternative shift."""
        hyperparameters, extra_noise = process.hyperparameters, process.extra_noise
        others = (
            GaussianProcess(
                process.geometry, hyperparameters, points=points, targets=process.targets, extra_noise=extra_noise
            )
            for points in self._alternatives
        )
        return [process, *others]

    def add_fantasies(self, process: GaussianProcess) -> GaussianProcess:
        """Return the process with several fantasies, each with other sampled outcomes of the pending trials."""
        pending = self.in_target_task(self._arrays.pending)
        fantasies = max(self._limits.fantasies // (1 + len(self._alternatives)), self._limits.min_fantasies)
        outcomes = process.sample(pending, self._generator, size=fantasies)
        known = np.repeat(process.targets[:, None], fantasies, axis=1)
        return GaussianProcess(
            process.geometry,
            process.hyperparameters,
            points=np.concatenate([process.points, pending]),
            targets=np.concatenate([known, outcomes]),
            extra_noise=np.concatenate([process.extra_noise, np.zeros(len(pending))]),
        )

    @property
    def has_failures(self) -> bool:
        return len(self._arrays.failed) + len(self._arrays.failed_in_sources) > 0

    def fit_feasibility(self) -> GaussianProcess:
        """Fit a process to 1 where trials succeeded and -1 where they failed; source tasks get extra noise."""
        known = self._arrays
        rows = np.concatenate([known.rows, known.failed, known.failed_in_sources])
        labels = np.where(np.arange(len(rows)) < len(known.rows), 1.0, -1.0)
        in_sources = np.repeat([0.0, 1.0], [len(known.failed), len(known.failed_in_sources)])
        extra_noise = _SOURCE_FAILURE_NOISE * np.concatenate([~known.is_target, in_sources])
        subset = self._thin(labels, self._limits.max_fit_observations)
        return fit_process(
            self._geometry,
            _FEASIBILITY_PRIOR,
            points=rows[subset],
            targets=labels[subset],
            extra_noise=extra_noise[subset],
        )

    def in_target_task(self, rows: Array) -> Array:
        """Return points of this study with the axis of the task, if there is one."""
        return np.column_stack([rows, np.zeros(len(rows))]) if self.has_sources else rows

    def _fit(self, points: Array, targets: Array, extra_noise: Array) -> GaussianProcess:
        geometry = self._geometry_with_sources()
        subset = self._thin(targets, self._limits.max_fit_observations)
        process = fit_process(
            geometry,
            self._prior_with_sources(),
            points=points[subset],
            targets=targets[subset],
            extra_noise=extra_noise[subset],
        )
        if len(subset) == len(points):
            return process
        return GaussianProcess(
            geometry, process.hyperparameters, points=points, targets=targets, extra_noise=extra_noise
        )

    def _with_sources(self, rows: Array) -> Array:
        return np.column_stack([rows, self._arrays.sources]) if self.has_sources else rows

    def _geometry_with_sources(self) -> Geometry:
        if not self.has_sources:
            return self._geometry
        return Geometry((*self._geometry.categories, int(self._arrays.sources.max()) + 1))

    def _prior_with_sources(self) -> Prior:
        return replace(self._prior, log_task_weight=_LOG_TASK_WEIGHT_MEAN) if self.has_sources else self._prior

    def _thin(self, targets: Array, most: int) -> NDArray[np.intp]:
        """Return at most `most` indices, in order: the best targets for half, and random others for the rest."""
        if len(targets) <= most:
            return np.arange(len(targets))
        order = np.argsort(targets, kind="stable")
        others = self._generator.choice(order[most // 2 :], size=most - most // 2, replace=False)
        return np.sort(np.concatenate([order[: most // 2], others]))
