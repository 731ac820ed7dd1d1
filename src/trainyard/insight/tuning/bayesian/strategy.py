"""Bayesian optimisation: an initial space-filling design, then the maximum of the acquisition function."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from trainyard.foundation.jobs.tuning import Direction
from trainyard.insight.tuning.bayesian.acquisition import (
    Acquisition,
    AveragedAcquisition,
    ExpectedImprovement,
    FeasibilityWeighted,
    TargetTaskAcquisition,
)
from trainyard.insight.tuning.bayesian.acquisition_search import AcquisitionSearch
from trainyard.insight.tuning.bayesian.gaussian_process import GaussianProcess
from trainyard.insight.tuning.bayesian.history_arrays import HistoryArrays, history_arrays
from trainyard.insight.tuning.bayesian.kernel import Array, kernel_geometry
from trainyard.insight.tuning.bayesian.surrogate import SurrogateModel
from trainyard.insight.tuning.contract import Observation, Value
from trainyard.insight.tuning.space import Space

# Random Latin hypercubes of which the best one is the initial design.
_HYPERCUBES = 64


def initial_design(space: Space, count: int, *, generator: np.random.Generator) -> Array:
    """Return a maximin Latin hypercube: of many random ones, that whose closest points are farthest apart."""
    hypercubes = [_latin_hypercube(space.dimension, count, generator) for _ in range(_HYPERCUBES)]
    designs = [space.spread(units) for units in hypercubes]
    closest = [_min_distance(space, rows) for rows in designs]
    return designs[int(np.argmax(closest))]


def _latin_hypercube(dimension: int, count: int, generator: np.random.Generator) -> Array:
    cells = np.argsort(generator.random((dimension, count)), axis=1).T
    return (cells + generator.random((count, dimension))) / count


def _min_distance(space: Space, rows: Array) -> float:
    if len(rows) < 2:
        return 0.0
    differences = np.abs(rows[:, None, :] - rows[None, :, :])
    differences[:, :, space.categorical] = differences[:, :, space.categorical] > 0.0
    distances = np.sum(differences**2, axis=2)
    return float(np.min(distances[np.triu_indices(len(rows), 1)]))


# The best points, near which the acquisition search draws candidates.
_ANCHORS = 5
# The exploration of every second or third trial while others run, because these explore already.
_REDUCED_EXPLORATION = 0.3
# Standard deviations above the worst target, so that any value is an improvement.
_MAX_DEVIATIONS = 30.0


class BayesianStrategy:
    """Suggests trials by a Gaussian process.

    The first trials of a study without parents form a space-filling design. No point is repeated while an untried one
    is left. `same_task_sources` are the sources of observations of the same function: the trials of parents with
    the same data and algorithm.
    """

    def __init__(
        self,
        space: Space,
        direction: Direction,
        *,
        seed: int,
        same_task_sources: Collection[str] = (),
    ) -> None:
        self._space = space
        self._direction = direction
        self._seed = seed
        self._same_task_sources = frozenset(same_task_sources)
        counts = [axis.count for axis in space.axes]
        self._geometry = kernel_geometry(counts, [bool(each) for each in space.categorical])
        # A wrong category is harder to leave than a wrong number, so categories need more exploration.
        self._exploit_every = 3 if np.any(space.categorical) else 2
        self._initial_count = 3 + math.ceil(math.sqrt(space.dimension))

    def suggest(self, history: Sequence[Observation], *, number: int) -> Mapping[str, Value] | None:
        arrays = history_arrays(
            self._space, history, direction=self._direction, same_task_sources=self._same_task_sources
        )
        generator = np.random.default_rng([self._seed, number])
        if not self._space.dimension:
            return self._space.decode(np.empty(0))
        if self._needs_initial_design(arrays):
            return self._suggest_initial(arrays, generator)
        return self._suggest_by_model(arrays, generator, number=number)

    def chooses_initially(self, history: Sequence[Observation]) -> bool:
        """Whether the next trial is one of the initial design, which no model chooses."""
        arrays = history_arrays(
            self._space, history, direction=self._direction, same_task_sources=self._same_task_sources
        )
        return bool(self._space.dimension) and self._needs_initial_design(arrays)

    def _needs_initial_design(self, arrays: HistoryArrays) -> bool:
        if not np.all(arrays.is_target):
            return False
        started = len(arrays.losses) + len(arrays.pending) + len(arrays.failed)
        return len(arrays.losses) < max(2, self._initial_count // 2) or started < self._initial_count

    def _suggest_initial(self, arrays: HistoryArrays, generator: np.random.Generator) -> dict[str, Value]:
        started = len(arrays.losses) + len(arrays.pending) + len(arrays.failed)
        design = initial_design(self._space, self._initial_count, generator=np.random.default_rng(self._seed))
        rows = [*design[started:], *self._space.sample(generator, 64)]
        points = [self._space.decode(row) for row in rows]
        untried = next((point for point in points if self._space.key(point) not in arrays.tried), None)
        return untried or AcquisitionSearch(self._space, arrays.tried).any_untried(generator) or points[-1]

    def _suggest_by_model(
        self, arrays: HistoryArrays, generator: np.random.Generator, *, number: int
    ) -> dict[str, Value]:
        surrogate = SurrogateModel(self._geometry, arrays, generator=generator)
        process = surrogate.fit()
        exploration = _REDUCED_EXPLORATION if len(arrays.pending) and number % self._exploit_every == 0 else 1.0
        acquisition = _acquisition(process, arrays, surrogate=surrogate, exploration=exploration)
        return AcquisitionSearch(self._space, arrays.tried).best(
            acquisition, self._anchors(process), generator=generator
        )

    def _anchors(self, process: GaussianProcess) -> Array:
        """Return the best known points, from any task."""
        order = np.argsort(process.smoothed_targets(), kind="stable")
        return process.points[order[:_ANCHORS], : self._space.dimension]


def _acquisition(
    process: GaussianProcess, arrays: HistoryArrays, *, surrogate: SurrogateModel, exploration: float
) -> Acquisition:
    processes = surrogate.alternative_processes(process)
    if len(arrays.pending):
        processes = [surrogate.add_fantasies(each) for each in processes]
    improvements = [
        ExpectedImprovement(each, _incumbents(each, arrays, surrogate), exploration=exploration) for each in processes
    ]
    improvement: Acquisition = AveragedAcquisition(improvements) if len(improvements) > 1 else improvements[0]
    if surrogate.has_sources:
        improvement = TargetTaskAcquisition(improvement)
    return FeasibilityWeighted(improvement, surrogate.fit_feasibility()) if surrogate.has_failures else improvement


def _incumbents(process: GaussianProcess, arrays: HistoryArrays, surrogate: SurrogateModel) -> Array:
    """Return the value to improve on in each fantasy: the lowest of this study's own trials.

    If a study with parents has no trials yet, any value is an improvement, so that its first trial is where the best is
    expected and not where there is most to learn.
    """
    trials = surrogate.in_target_task(np.concatenate([arrays.rows[arrays.is_own_trial], arrays.pending]))
    if not len(trials):
        return np.asarray(process.targets.reshape(len(process.points), -1).max(axis=0) + _MAX_DEVIATIONS)
    return np.asarray(process.posterior(trials).mean.reshape(len(trials), -1).min(axis=0))
