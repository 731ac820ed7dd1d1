"""The steps of each rank that rules judge, and how their time divides into phases."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import JobProfile, Numbers, RankProfile

# With as many rows, the first step can be left out, and a step as long as all others.
_ENOUGH_ROWS = 5


@dataclass(frozen=True, slots=True)
class TrainingSteps:
    """The training steps of a rank, without the first one, which compiles, allocates and starts workers.

    A step that took longer than all others together is left out as well: the machine was suspended, or the program
    waited for somebody.
    """

    rank: RankProfile
    steps: int
    phases_s: Numbers  # the total of each phase

    @property
    def seconds(self) -> float:
        return float(self.phases_s.sum())

    @property
    def step_s(self) -> float:
        """The mean duration of a step."""
        return self.seconds / self.steps if self.steps else 0.0

    @property
    def phase_step_s(self) -> Numbers:
        """The mean time of a step in each phase."""
        means: Numbers = self.phases_s / max(self.steps, 1)
        return means

    def share(self, *phases: StepPhase) -> float:
        """Return the share of the time that the phases take, from 0 to 1."""
        total = self.seconds
        return float(self.phases_s[list(phases)].sum()) / total if total > 0 else 0.0


def training_steps(profile: JobProfile, *, host: str = "") -> Sequence[TrainingSteps]:
    """Return the training steps of each rank that has any, on one host or on all."""
    ranks = [rank for rank in profile.ranks if not host or rank.host == host]
    return [steps for rank in ranks if (steps := _steps_of(rank)).steps]


def phases_of(rank: RankProfile) -> Numbers:
    """Return the seconds of each row and phase, none of them negative or NaN."""
    phases = rank.steps.phases_s
    usable: Numbers = np.where(np.isfinite(phases) & (phases > 0), phases, 0.0)
    return usable


def is_mode(rank: RankProfile, mode: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which rows of a rank are of a mode."""
    # Most ranks have one mode only, and a list counts it quickly.
    if (count := rank.steps.modes.count(mode)) in (0, len(rank.steps)):
        return np.full(len(rank.steps), bool(count), dtype=np.bool_)
    return np.fromiter((each == mode for each in rank.steps.modes), dtype=np.bool_, count=len(rank.steps))


def _steps_of(rank: RankProfile) -> TrainingSteps:
    rows = np.flatnonzero(is_mode(rank, Mode.TRAIN) & (rank.steps.counts > 0))
    phases = phases_of(rank)
    if len(rows) >= _ENOUGH_ROWS:
        rows = rows[1:]
        seconds = phases[rows].sum(axis=1)
        longest = int(seconds.argmax())
        if seconds[longest] > seconds.sum() / 2:
            rows = np.delete(rows, longest)
    return TrainingSteps(rank, int(rank.steps.counts[rows].sum()), phases[rows].sum(axis=0))
