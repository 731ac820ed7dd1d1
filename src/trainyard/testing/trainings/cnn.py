"""A convolutional network with batch normalisation that reads handwritten digits."""

from collections import OrderedDict

import torch
from torch import nn

from trainyard.testing.trainings import digits
from trainyard.testing.trainings.samples import shuffled, split
from trainyard.testing.trainings.setup import Setup, accuracy


class Convolutional(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Two convolutions, and a score for each class."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        # The convolutions keep their biases, as nn.Conv2d makes them: normalisation takes these out again, so that
        # their gradients are almost zero in perfect health.
        self.block1 = _block(1, 16)
        self.block2 = _block(16, 32)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.2)
        self.output = nn.Linear(32 * 4 * 4, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        seen = self.pool(self.block2(self.block1(images)))
        return self.output(self.dropout(seen.flatten(1)))


def prepare(seed: int) -> Setup:
    """Stochastic gradient descent with momentum and weight decay."""
    training, evaluation = split(digits.images(), seed=seed)
    model = Convolutional()
    return Setup(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4),
        batches=shuffled(training, 64, seed=seed),
        evaluation=evaluation,
        epochs=10,
        metric=accuracy,
    )


def _block(inputs: int, outputs: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1)
    return nn.Sequential(OrderedDict(conv=convolution, norm=nn.BatchNorm2d(outputs), relu=nn.ReLU()))
