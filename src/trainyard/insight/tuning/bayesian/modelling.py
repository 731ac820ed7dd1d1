"""The process that a suggestion goes by: fitted to what is known, and imagined past what is still pending."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainyard.insight.tuning.bayesian import fitting
from trainyard.insight.tuning.bayesian.evidence import Evidence
from trainyard.insight.tuning.bayesian.gp import GaussianProcess
from trainyard.insight.tuning.bayesian.kernels import Array, Geometry
from trainyard.insight.tuning.bayesian.kinship import is_misled, reconciled
from trainyard.insight.tuning.bayesian.luck import excused

_STRANGENESS = -5.0  # how little relatives that were moved to where they belong are believed to differ otherwise
_ELSEWHERE = 0.5  # the variance of whether a trial fails, where one of a relative did or did not
_OF_FAILURES = fitting.Beliefs(noise=-3.0, noise_deviation=0.5)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is computed for one suggestion, which bounds its time."""

    fitted: int = 120  # observations that hyperparameters are fitted to
    known: int = 400  # observations that a process knows
    worlds: int = 16  # in which pending trials come out differently
    fewest_worlds: int = 2  # where relatives may lie in several places


_BELIEFS = fitting.Beliefs()
_LIMITS = Limits()


class Modelling:
    """Makes a process from evidence.

    Where a study has parents, the parent that a point is from is one more axis; its weight, which is fitted as that of
    any other, is how little they say about this study. Relatives that mislead are left out.
    """

    def __init__(
        self,
        geometry: Geometry,
        evidence: Evidence,
        *,
        generator: np.random.Generator,
        beliefs: fitting.Beliefs = _BELIEFS,
        limits: Limits = _LIMITS,
    ) -> None:
        self._geometry = geometry
        self._evidence = evidence
        self._beliefs = beliefs
        self._limits = limits
        self._generator = generator
        self._otherwise: list[Array] = []
        self.has_relatives = not bool(np.all(evidence.own))

    def process(self) -> GaussianProcess:
        """The likeliest process, which has seen the evidence."""
        self._evidence, targets, otherwise = reconciled(
            self._evidence, self._geometry, beliefs=self._beliefs, generator=self._generator
        )
        known = self._chosen(targets, self._limits.known)
        self._otherwise = [self._with_sources(rows)[known] for rows in otherwise]
        process = self._fitted(
            self._with_sources(self._evidence.rows)[known], targets[known], self._evidence.doubts[known]
        )
        process = excused(process, self._fitted, beliefs=self._beliefs_of_all())
        if not self.has_relatives or not is_misled(process, beliefs=self._beliefs):
            return process
        self._evidence, self.has_relatives = self._evidence.alone(), False
        return self.process()

    def possible(self, process: GaussianProcess) -> list[GaussianProcess]:
        """The likeliest process, and it with the relatives' trials where they may lie as well."""
        likely, doubts = process.hyperparameters, process.doubts
        others = (
            GaussianProcess(process.geometry, likely, points=points, targets=process.targets, doubts=doubts)
            for points in self._otherwise
        )
        return [process, *others]

    def imagined(self, process: GaussianProcess) -> GaussianProcess:
        """The process in several worlds, in each of which the pending trials have come to something else."""
        pending = self.at_home(self._evidence.pending)
        worlds = max(self._limits.worlds // (1 + len(self._otherwise)), self._limits.fewest_worlds)
        outcomes = process.sample(pending, self._generator, size=worlds)
        known = np.repeat(process.targets[:, None], worlds, axis=1)
        return GaussianProcess(
            process.geometry,
            process.hyperparameters,
            points=np.concatenate([process.points, pending]),
            targets=np.concatenate([known, outcomes]),
            doubts=np.concatenate([process.doubts, np.zeros(len(pending))]),
        )

    @property
    def has_failures(self) -> bool:
        return len(self._evidence.failed) + len(self._evidence.failed_elsewhere) > 0

    def feasibility(self) -> GaussianProcess:
        """A process that has seen 1 where trials went well, and -1 where they failed; those of relatives with doubt."""
        known = self._evidence
        rows = np.concatenate([known.rows, known.failed, known.failed_elsewhere])
        labels = np.where(np.arange(len(rows)) < len(known.rows), 1.0, -1.0)
        are_elsewhere = np.repeat([0.0, 1.0], [len(known.failed), len(known.failed_elsewhere)])
        doubts = _ELSEWHERE * np.concatenate([~known.own, are_elsewhere])
        few = self._chosen(labels, self._limits.fitted)
        return fitting.fitted(self._geometry, _OF_FAILURES, points=rows[few], targets=labels[few], doubts=doubts[few])

    def at_home(self, rows: Array) -> Array:
        """Points of this study as its processes know them."""
        return np.column_stack([rows, np.zeros(len(rows))]) if self.has_relatives else rows

    def _fitted(self, points: Array, targets: Array, doubts: Array) -> GaussianProcess:
        geometry = self._wide_geometry()
        few = self._chosen(targets, self._limits.fitted)
        process = fitting.fitted(
            geometry, self._beliefs_of_all(), points=points[few], targets=targets[few], doubts=doubts[few]
        )
        if len(few) == len(points):
            return process
        return GaussianProcess(geometry, process.hyperparameters, points=points, targets=targets, doubts=doubts)

    def _with_sources(self, rows: Array) -> Array:
        return np.column_stack([rows, self._evidence.sources]) if self.has_relatives else rows

    def _wide_geometry(self) -> Geometry:
        if not self.has_relatives:
            return self._geometry
        return Geometry((*self._geometry.categories, int(self._evidence.sources.max()) + 1))

    def _beliefs_of_all(self) -> fitting.Beliefs:
        return replace(self._beliefs, strangeness=_STRANGENESS) if self.has_relatives else self._beliefs

    def _chosen(self, targets: Array, most: int) -> NDArray[np.intp]:
        """So many of them at most, in their order: the better half, and others by chance."""
        if len(targets) <= most:
            return np.arange(len(targets))
        order = np.argsort(targets, kind="stable")
        others = self._generator.choice(order[most // 2 :], size=most - most // 2, replace=False)
        return np.sort(np.concatenate([order[: most // 2], others]))
