"""A perceptron with two hidden layers that reads handwritten digits."""

from collections import OrderedDict

import torch
from torch import nn

from trainyard.testing.trainings import digits
from trainyard.testing.trainings.samples import shuffled, split
from trainyard.testing.trainings.setup import Setup, accuracy


class Perceptron(nn.Sequential):  # type: ignore[misc]  # mypy does not read torch
    """Hidden layers of some widths, each followed by an activation, and a score for each digit."""

    def __init__(self, widths: tuple[int, ...] = (64, 32), activation: type[nn.Module] = nn.ReLU) -> None:
        layers = OrderedDict[str, nn.Module]()
        inputs = 64
        for number, width in enumerate(widths, start=1):
            linear, active = nn.Linear(inputs, width), activation()
            layers[f"layer{number}"] = nn.Sequential(
                OrderedDict({"linear": linear, activation.__name__.lower(): active})
            )
            inputs = width
        super().__init__(layers | {"output": nn.Linear(inputs, 10)})


def prepare(seed: int) -> Setup:
    """Adam at its usual learning rate."""
    training, evaluation = split(digits.vectors(), seed=seed)
    model = Perceptron()
    return Setup(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=2e-3),
        batches=shuffled(training, 64, seed=seed),
        evaluation=evaluation,
        epochs=12,
        metric=accuracy,
    )
