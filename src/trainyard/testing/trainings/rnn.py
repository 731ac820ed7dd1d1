"""A recurrent network that says whether a short review is friendly."""

import torch
from torch import nn

from trainyard.testing.trainings import reviews
from trainyard.testing.trainings.samples import shuffled, split
from trainyard.testing.trainings.setup import Setup, accuracy


class Reader(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Reads word by word and judges by what it remembers after the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(reviews.VOCABULARY), 24, padding_idx=reviews.PADDING)
        self.gru = nn.GRU(24, 32, batch_first=True)
        self.hidden = nn.Linear(32, 16)
        self.tanh = nn.Tanh()
        self.output = nn.Linear(16, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(self.embedding(words))
        last = (words != reviews.PADDING).sum(1) - 1
        remembered = states[torch.arange(len(words)), last]
        return self.output(self.tanh(self.hidden(remembered)))


def prepare(seed: int) -> Setup:
    """Adam with clipped gradients; evaluated once, at the end."""
    training, evaluation = split(reviews.written(2000, seed=seed), seed=seed)
    model = Reader()
    return Setup(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=5e-3),
        batches=shuffled(training, 50, seed=seed),
        evaluation=evaluation,
        epochs=8,
        metric=accuracy,
        largest_gradient_norm=1.0,
        evaluates_each_epoch=False,
    )
