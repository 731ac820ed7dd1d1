"""A training with a name, and a fault that makes another of it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainyard.testing.trainings.loop import Outcome, train
from trainyard.testing.trainings.setup import Setup
from trainyard.testing.trainings.watch import Silent, Watch


@dataclass(frozen=True, slots=True)
class Training:
    """Something that can be trained again and again; each seed is a run of its own, and always the same one."""

    name: str
    prepare: Callable[[int], Setup]

    def run(self, seed: int, *, watch: Watch | None = None) -> Outcome:
        """Train from the beginning to the end, and leave torch's random numbers as they were."""
        with torch.random.fork_rng(devices=[]):
            return train(self.prepared(seed), watch or Silent())

    def prepared(self, seed: int) -> Setup:
        """All that the run consists of; torch's random numbers begin with the seed."""
        torch.manual_seed(seed)
        return self.prepare(seed)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that can be wrong with a training, and the rules that ought to see it."""

    change: Callable[[Setup], Setup]
    of: Training
    rules: tuple[str, ...]
    step: int = 0  # the first training step that is not as it should be, counted from 0

    @property
    def name(self) -> str:
        return self.change.__name__

    @property
    def summary(self) -> str:
        """What is wrong, in one sentence."""
        return (self.change.__doc__ or "").strip()

    @property
    def twin(self) -> Training:
        """The training with this fault in it."""
        return Training(f"{self.of.name} with {self.name}", self._prepare)

    def run(self, seed: int, *, watch: Watch | None = None) -> Outcome:
        """Train with this fault, the seed deciding all the rest as it does without."""
        return self.twin.run(seed, watch=watch)

    def _prepare(self, seed: int) -> Setup:
        return self.change(self.of.prepare(seed))
