"""A network that knows the digits from 0 to 4 and learns those from 5 to 9, its first block frozen."""

import torch
from torch import nn

from trainyard.testing.trainings import digits
from trainyard.testing.trainings.cnn import Convolutional
from trainyard.testing.trainings.loop import train
from trainyard.testing.trainings.samples import Samples, shuffled, split
from trainyard.testing.trainings.setup import Setup, accuracy
from trainyard.testing.trainings.watch import Silent

_CLASSES = 5


def prepare(seed: int) -> Setup:
    """A new head, which learns ten times as fast as what is below it."""
    model = _pretrained(seed)
    model.output = nn.Linear(model.output.in_features, _CLASSES)
    model.block1.requires_grad_(False)
    groups = [
        {"params": model.block2.parameters(), "lr": 2e-4},
        {"params": model.output.parameters(), "lr": 2e-3},
    ]
    training, evaluation = split(_five_digits(_CLASSES), seed=seed)
    return Setup(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.AdamW(groups),
        batches=shuffled(training, 32, seed=seed),
        evaluation=evaluation,
        epochs=10,
        metric=accuracy,
    )


def _pretrained(seed: int) -> Convolutional:
    training, evaluation = split(_five_digits(0), seed=seed)
    model = Convolutional(_CLASSES)
    setup = Setup(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3),
        batches=shuffled(training, 64, seed=seed),
        evaluation=evaluation,
        epochs=4,
        metric=accuracy,
    )
    train(setup, Silent())
    return model


def _five_digits(first: int) -> Samples:
    samples = digits.images()
    inputs, labels = samples.chosen((samples.targets >= first) & (samples.targets < first + _CLASSES))
    return Samples(inputs, labels - first)
