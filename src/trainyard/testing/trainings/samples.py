"""Training data: inputs with their targets, and their order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch


class Samples(NamedTuple):
    """Inputs and the target of each."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def select(self, which: torch.Tensor) -> "Samples":
        """Return the samples at an index or a mask."""
        return Samples(self.inputs[which], self.targets[which])

    def split(self, size: int) -> Iterator["Samples"]:
        """Yield all samples in order, `size` at a time."""
        return map(Samples, self.inputs.split(size), self.targets.split(size))


class Split(NamedTuple):
    """Samples for training and for evaluation."""

    training: Samples
    evaluation: Samples


def split(samples: Samples, *, seed: int) -> Split:
    """Split off a random fifth of the samples for evaluation."""
    order = torch.randperm(len(samples.targets), generator=torch.Generator().manual_seed(seed))
    held_back = len(order) // 5
    return Split(samples.select(order[held_back:]), samples.select(order[:held_back]))


def keep_batch(step: int, batch: Samples) -> Samples:  # noqa: ARG001
    """Return the batch unchanged, at any step."""
    return batch


@dataclass(slots=True)
class Batches:
    """Mini-batches of samples, in a new random order for each epoch."""

    samples: Samples
    size: int
    generator: torch.Generator
    # Receives the number of the batch, counted over all epochs.
    transform: Callable[[int, Samples], Samples] = keep_batch
    step: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Samples]:
        order = torch.randperm(len(self.samples.targets), generator=self.generator)
        for which in order.split(self.size):
            yield self.transform(self.step, self.samples.select(which))
            self.step += 1


def make_batches(samples: Samples, size: int, *, seed: int) -> Batches:
    """Return mini-batches whose order depends on the seed."""
    return Batches(samples, size, torch.Generator().manual_seed(seed))
