"""Three trainings that classify handwritten digits from scikit-learn: an MLP, a CNN, and a fine-tuned CNN."""

from collections import OrderedDict

import torch
from sklearn.datasets import load_digits
from torch import nn

from trainyard.testing.trainings.samples import Samples, make_batches, split
from trainyard.testing.trainings.training_loop import NullWatch, Setup, accuracy, train

_FINE_TUNED_CLASSES = 5


def digit_images() -> Samples:
    """Return images of one channel, normalized to mean 0 and standard deviation 1, and the digit of each."""
    images, labels = _load_digits()
    return Samples(((images - images.mean()) / images.std()).reshape(-1, 1, 8, 8), labels)


def digit_vectors() -> Samples:
    """Return the pixels of each image as a vector, from 0 to 1, and the digit of each."""
    images, labels = _load_digits()
    return Samples(images / 16, labels)


def _load_digits() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32), torch.tensor(labels)


class Perceptron(nn.Sequential):  # type: ignore[misc]  # mypy does not read torch
    """Hidden layers of given widths, each followed by an activation, and a score for each digit."""

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


def prepare_mlp(seed: int) -> Setup:
    """Train with Adam."""
    training, evaluation = split(digit_vectors(), seed=seed)
    model = Perceptron()
    return Setup(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=2e-3),
        batches=make_batches(training, 64, seed=seed),
        evaluation=evaluation,
        epochs=12,
        metric=accuracy,
    )


class Convolutional(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Two convolutions, and a score for each class."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        # The convolutions keep nn.Conv2d's default biases. Normalization cancels these, so their gradients are almost
        # zero in a healthy training.
        self.block1 = _block(1, 16)
        self.block2 = _block(16, 32)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.2)
        self.output = nn.Linear(32 * 4 * 4, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.pool(self.block2(self.block1(images)))
        return self.output(self.dropout(features.flatten(1)))


def prepare_cnn(seed: int) -> Setup:
    """Train with stochastic gradient descent, momentum and weight decay."""
    training, evaluation = split(digit_images(), seed=seed)
    model = Convolutional()
    return Setup(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4),
        batches=make_batches(training, 64, seed=seed),
        evaluation=evaluation,
        epochs=10,
        metric=accuracy,
    )


def _block(inputs: int, outputs: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1)
    return nn.Sequential(OrderedDict(conv=convolution, norm=nn.BatchNorm2d(outputs), relu=nn.ReLU()))


def prepare_fine_tuning(seed: int) -> Setup:
    """Train a new head, at ten times the learning rate of the layers below it."""
    model = _pretrain(seed)
    model.output = nn.Linear(model.output.in_features, _FINE_TUNED_CLASSES)
    model.block1.requires_grad_(False)
    groups = [
        {"params": model.block2.parameters(), "lr": 2e-4},
        {"params": model.output.parameters(), "lr": 2e-3},
    ]
    training, evaluation = split(_five_digits(_FINE_TUNED_CLASSES), seed=seed)
    return Setup(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.AdamW(groups),
        batches=make_batches(training, 32, seed=seed),
        evaluation=evaluation,
        epochs=10,
        metric=accuracy,
    )


def _pretrain(seed: int) -> Convolutional:
    training, evaluation = split(_five_digits(0), seed=seed)
    model = Convolutional(_FINE_TUNED_CLASSES)
    setup = Setup(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3),
        batches=make_batches(training, 64, seed=seed),
        evaluation=evaluation,
        epochs=4,
        metric=accuracy,
    )
    train(setup, NullWatch())
    return model


def _five_digits(first: int) -> Samples:
    samples = digit_images()
    inputs, labels = samples.select((samples.targets >= first) & (samples.targets < first + _FINE_TUNED_CLASSES))
    return Samples(inputs, labels - first)
