"""Says what to try next by a model of the objective: the point that promises most, given all that is known."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from trainyard.foundation.tuning import Direction
from trainyard.insight.tuning.bayesian.acquisition import (
    Acquisition,
    AmongRelatives,
    Averaged,
    ExpectedImprovement,
    Feasible,
)
from trainyard.insight.tuning.bayesian.design import spread_points
from trainyard.insight.tuning.bayesian.evidence import Evidence, evidence_of
from trainyard.insight.tuning.bayesian.gp import GaussianProcess
from trainyard.insight.tuning.bayesian.kernels import Array, geometry_of
from trainyard.insight.tuning.bayesian.modelling import Modelling
from trainyard.insight.tuning.bayesian.searching import Search
from trainyard.insight.tuning.contract import Observation, Value
from trainyard.insight.tuning.space import Space

_ANCHORS = 5
_LITTLE_CURIOSITY = 0.3  # of every second trial while others run, which explore already
_FAR_BEYOND = 30.0  # deviations, more than any process is unsure of


class BayesianStrategy:
    """Searches by a Gaussian process, as `contract.Strategy` says.

    The first trials are spread well, as long as there is nothing to go by. A point is not tried again while another is
    left. `alike` are the sources of observations that are of the same function, as the trials of parents with the same
    data and algorithm.
    """

    def __init__(
        self,
        space: Space,
        direction: Direction,
        *,
        seed: int,
        alike: Collection[str] = (),
    ) -> None:
        self._space = space
        self._direction = direction
        self._seed = seed
        self._alike = frozenset(alike)
        counts = [axis.count for axis in space.axes]
        self._geometry = geometry_of(counts, [bool(each) for each in space.categorical])
        self._turn = 3 if np.any(space.categorical) else 2  # a wrong category is harder to leave than a wrong place
        self._first = 3 + math.ceil(math.sqrt(space.dimension))

    def suggest(self, history: Sequence[Observation], *, number: int) -> Mapping[str, Value] | None:
        evidence = evidence_of(self._space, history, direction=self._direction, alike=self._alike)
        generator = np.random.default_rng([self._seed, number])
        if not self._space.dimension:
            return self._space.decode(np.empty(0))
        if self._has_too_little(evidence):
            return self._spread(evidence, generator)
        return self._promising(evidence, generator, number=number)

    def _has_too_little(self, evidence: Evidence) -> bool:
        if not np.all(evidence.own):
            return False
        started = len(evidence.losses) + len(evidence.pending) + len(evidence.failed)
        return len(evidence.losses) < max(2, self._first // 2) or started < self._first

    def _spread(self, evidence: Evidence, generator: np.random.Generator) -> dict[str, Value]:
        started = len(evidence.losses) + len(evidence.pending) + len(evidence.failed)
        design = spread_points(self._space, self._first, generator=np.random.default_rng(self._seed))
        rows = [*design[started:], *self._space.sample(generator, 64)]
        points = [self._space.decode(row) for row in rows]
        found = next((point for point in points if self._space.key(point) not in evidence.taken), None)
        return found or Search(self._space, evidence.taken).any_left(generator) or points[-1]

    def _promising(self, evidence: Evidence, generator: np.random.Generator, *, number: int) -> dict[str, Value]:
        modelling = Modelling(self._geometry, evidence, generator=generator)
        process = modelling.process()
        curiosity = _LITTLE_CURIOSITY if len(evidence.pending) and number % self._turn == 0 else 1.0
        acquisition = _acquisition(process, evidence, modelling=modelling, curiosity=curiosity)
        return Search(self._space, evidence.taken).best(acquisition, self._anchors(process), generator=generator)

    def _anchors(self, process: GaussianProcess) -> Array:
        """The best points, wherever they are known from."""
        order = np.argsort(process.denoised(), kind="stable")
        return process.points[order[:_ANCHORS], : self._space.dimension]


def _acquisition(
    process: GaussianProcess, evidence: Evidence, *, modelling: Modelling, curiosity: float
) -> Acquisition:
    processes = modelling.possible(process)
    if len(evidence.pending):
        processes = [modelling.imagined(each) for each in processes]
    improvements = [
        ExpectedImprovement(each, _bests(each, evidence, modelling), curiosity=curiosity) for each in processes
    ]
    improvement: Acquisition = Averaged(improvements) if len(improvements) > 1 else improvements[0]
    if modelling.has_relatives:
        improvement = AmongRelatives(improvement)
    return Feasible(improvement, modelling.feasibility()) if modelling.has_failures else improvement


def _bests(process: GaussianProcess, evidence: Evidence, modelling: Modelling) -> Array:
    """What has to be improved on in each world: the least of this study's own trials.

    A study with parents that has none yet takes anything for an improvement, so that its first trial is where the best
    is expected, and not where there is most to learn.
    """
    trials = modelling.at_home(np.concatenate([evidence.rows[evidence.mine], evidence.pending]))
    if not len(trials):
        return np.asarray(process.targets.reshape(len(process.points), -1).max(axis=0) + _FAR_BEYOND)
    return np.asarray(process.posterior(trials).mean.reshape(len(trials), -1).min(axis=0))
