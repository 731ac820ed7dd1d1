"""What is learned from: inputs with their targets, and the order in which they come."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch


class Samples(NamedTuple):
    """Inputs and what should be said to each of them."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def chosen(self, which: torch.Tensor) -> "Samples":
        """Those that an index or a mask picks."""
        return Samples(self.inputs[which], self.targets[which])

    def in_parts(self, size: int) -> Iterator["Samples"]:
        """All of them in their order, so many at a time."""
        return map(Samples, self.inputs.split(size), self.targets.split(size))


class Split(NamedTuple):
    """Samples to learn from, and others to be judged by."""

    training: Samples
    evaluation: Samples


def split(samples: Samples, *, seed: int) -> Split:
    """Every fifth sample for evaluation, drawn at random."""
    order = torch.randperm(len(samples.targets), generator=torch.Generator().manual_seed(seed))
    held_back = len(order) // 5
    return Split(samples.chosen(order[held_back:]), samples.chosen(order[:held_back]))


def undisturbed(step: int, batch: Samples) -> Samples:  # noqa: ARG001
    """The batch as it is, at any step."""
    return batch


@dataclass(slots=True)
class Batches:
    """Mini-batches of samples, in a new random order each time they are gone through."""

    samples: Samples
    size: int
    generator: torch.Generator
    disturb: Callable[[int, Samples], Samples] = undisturbed  # is told the number of the batch over all epochs
    step: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Samples]:
        order = torch.randperm(len(self.samples.targets), generator=self.generator)
        for which in order.split(self.size):
            yield self.disturb(self.step, self.samples.chosen(which))
            self.step += 1


def shuffled(samples: Samples, size: int, *, seed: int) -> Batches:
    """Mini-batches whose order the seed decides."""
    return Batches(samples, size, torch.Generator().manual_seed(seed))
