"""A small network with tanh that predicts the progression of diabetes from 442 patients: little, noisy data."""

from collections import OrderedDict

import torch
from sklearn.datasets import load_diabetes
from torch import nn

from trainyard.testing.trainings.samples import Samples, make_batches, split
from trainyard.testing.trainings.training_loop import Setup, explained_variance


class Regressor(nn.Sequential):  # type: ignore[misc]  # mypy does not read torch
    """Two hidden layers and one output."""

    def __init__(self) -> None:
        layers = OrderedDict(layer1=_layer(10, 16), layer2=_layer(16, 16), output=nn.Linear(16, 1))
        super().__init__(layers)


def prepare(seed: int) -> Setup:
    """Train with stochastic gradient descent and momentum; evaluate once, at the end."""
    training, evaluation = split(_patients(), seed=seed)
    model = Regressor()
    return Setup(
        model=model,
        loss=nn.MSELoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3),
        batches=make_batches(training, 32, seed=seed),
        evaluation=evaluation,
        epochs=25,
        metric=explained_variance,
        records_labels=False,
        evaluates_each_epoch=False,
    )


def _layer(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(OrderedDict(linear=nn.Linear(inputs, outputs), tanh=nn.Tanh()))


def _patients() -> Samples:
    measurements, progress = load_diabetes(return_X_y=True)
    inputs = torch.tensor(measurements, dtype=torch.float32)
    targets = torch.tensor(progress, dtype=torch.float32).unsqueeze(1)
    return Samples((inputs - inputs.mean(0)) / inputs.std(0), (targets - targets.mean()) / targets.std())
