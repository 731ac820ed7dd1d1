"""A small decoder that learns to write reviews, letter by letter."""

import math
import string
from collections import OrderedDict

import torch
from torch import nn

from trainyard.testing.trainings import reviews
from trainyard.testing.trainings.samples import Samples, shuffled, split
from trainyard.testing.trainings.setup import Setup, accuracy

LETTERS = string.ascii_lowercase + " ."
_REVIEWS = 1125
_LENGTH = 24
_WIDTH = 48
_HEADS = 4
_WARM_UP_STEPS = 30


class Attention(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """What each letter takes from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(_WIDTH, _WIDTH)
        self.key = nn.Linear(_WIDTH, _WIDTH)
        self.value = nn.Linear(_WIDTH, _WIDTH)
        self.softmax = nn.Softmax(dim=-1)
        self.output = nn.Linear(_WIDTH, _WIDTH)
        self.register_buffer("later", torch.ones(_LENGTH, _LENGTH, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        query, key, value = (self._heads(each(letters)) for each in (self.query, self.key, self.value))
        scores = query @ key.transpose(-2, -1) / math.sqrt(_WIDTH / _HEADS)
        weights = self.softmax(scores.masked_fill(self.later, -math.inf))
        return self.output((weights @ value).transpose(1, 2).flatten(2))

    def _heads(self, letters: torch.Tensor) -> torch.Tensor:
        return letters.unflatten(-1, (_HEADS, -1)).transpose(1, 2)


class Block(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Attention, then a perceptron, each added to what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(_WIDTH)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(_WIDTH)
        wide, narrow = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)
        self.mlp = nn.Sequential(OrderedDict(wide=wide, gelu=nn.GELU(), narrow=narrow))
        self.dropout = nn.Dropout(0.1)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        letters = letters + self.dropout(self.attention(self.norm1(letters)))
        return letters + self.dropout(self.mlp(self.norm2(letters)))


class Decoder(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Scores for the letter after each letter, as CrossEntropyLoss wants them: classes in the second dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS), _WIDTH)
        self.position = nn.Embedding(_LENGTH, _WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(_WIDTH)
        self.output = nn.Linear(_WIDTH, len(LETTERS))

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        seen = self.embedding(letters) + self.position(torch.arange(letters.shape[1]))
        for block in self.blocks:
            seen = block(seen)
        return self.output(self.norm(seen)).transpose(1, 2)


def prepare(seed: int) -> Setup:
    """AdamW with a warm-up, after which the learning rate falls along a cosine; clipped gradients."""
    training, evaluation = split(_windows(seed), seed=seed)
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    batches = shuffled(training, 32, seed=seed)
    epochs = 6
    steps = epochs * math.ceil(len(training.targets) / batches.size)
    return Setup(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        batches=batches,
        evaluation=evaluation,
        epochs=epochs,
        metric=accuracy,
        schedule=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share_of_rate(step, steps)),
        largest_gradient_norm=1.0,
        gives_out_labels=False,
    )


def _share_of_rate(step: int, steps: int) -> float:
    if step < _WARM_UP_STEPS:
        return (step + 1) / _WARM_UP_STEPS
    return 0.05 + 0.95 * (1 + math.cos(math.pi * (step - _WARM_UP_STEPS) / (steps - _WARM_UP_STEPS))) / 2


def _windows(seed: int) -> Samples:
    text = ". ".join(reviews.sentences(_REVIEWS, seed=seed))
    numbers = torch.tensor([LETTERS.index(letter) for letter in text])
    windows = numbers.unfold(0, _LENGTH + 1, _LENGTH)
    return Samples(windows[:, :-1].contiguous(), windows[:, 1:].contiguous())
