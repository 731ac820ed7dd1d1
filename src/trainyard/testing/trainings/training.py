"""A named training, and a fault that turns it into another."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainyard.testing.trainings.training_loop import NullWatch, Setup, TrainingOutcome, TrainingWatch, train


@dataclass(frozen=True, slots=True)
class SampleTraining:
    """A training that can be repeated. Each seed gives another run, always the same one."""

    name: str
    prepare: Callable[[int], Setup]

    def run(self, seed: int, *, watch: TrainingWatch | None = None) -> TrainingOutcome:
        """Run the whole training. torch's random state is restored afterwards."""
        with torch.random.fork_rng(devices=[]):
            return train(self.make_setup(seed), watch or NullWatch())

    def make_setup(self, seed: int) -> Setup:
        """Seed torch and make the setup of a run."""
        torch.manual_seed(seed)
        return self.prepare(seed)


@dataclass(frozen=True, slots=True)
class TrainingFault:
    """One thing that can be wrong with a training, and the rules that should find it."""

    change: Callable[[Setup], Setup]
    of: SampleTraining
    rules: tuple[str, ...]
    # The first faulty training step, counted from 0.
    step: int = 0

    @property
    def name(self) -> str:
        return self.change.__name__

    @property
    def summary(self) -> str:
        """What is wrong, in one sentence."""
        return (self.change.__doc__ or "").strip()

    @property
    def twin(self) -> SampleTraining:
        """The training with this fault."""
        return SampleTraining(f"{self.of.name} with {self.name}", self._prepare)

    def run(self, seed: int, *, watch: TrainingWatch | None = None) -> TrainingOutcome:
        """Run the training with this fault and the same seed as without it."""
        return self.twin.run(seed, watch=watch)

    def _prepare(self, seed: int) -> Setup:
        return self.change(self.of.prepare(seed))
