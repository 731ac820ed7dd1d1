"""Two trainings on short reviews, written at random: a recurrent classifier, and a transformer that generates them."""

import math
import random
import string
from collections import OrderedDict

import torch
from torch import nn

from trainyard.testing.trainings.samples import Samples, make_batches, split
from trainyard.testing.trainings.training_loop import Setup, accuracy

PADDING = 0
UNKNOWN = 1
_SUBJECTS = ("book", "film", "meal", "hotel", "train", "song", "play", "garden", "teacher", "game")
_FRIENDLY = ("good", "lovely", "great", "fine", "clever", "warm", "bright", "kind")
_UNFRIENDLY = ("bad", "dull", "poor", "awful", "cold", "slow", "rude", "weak")
_DEGREES = ("very", "quite", "really", "rather")
_OTHERS = ("the", "was", "not", "and", "but", "i", "thought", "today")
VOCABULARY = ("<padding>", "<unknown>", *_OTHERS, *_DEGREES, *_SUBJECTS, *_FRIENDLY, *_UNFRIENDLY)
MAX_WORDS = 14
_FLIPPED_LABEL_SHARE = 0.03

LETTERS = string.ascii_lowercase + " ."
_REVIEWS = 1125
_LENGTH = 24
_WIDTH = 48
_HEADS = 4
_WARM_UP_STEPS = 30


def make_reviews(count: int, *, seed: int) -> Samples:
    """Return reviews as word indices, padded to the longest, and labels: 1 for friendly. A few labels are wrong."""
    generator = random.Random(seed)
    pairs = [_review(generator) for _ in range(count)]
    return Samples(
        torch.tensor([_word_indices(words) for words, _ in pairs]), torch.tensor([label for _, label in pairs])
    )


def make_sentences(count: int, *, seed: int) -> list[str]:
    """Return reviews as text."""
    generator = random.Random(seed)
    return [" ".join(_review(generator)[0]) for _ in range(count)]


def _review(generator: random.Random) -> tuple[list[str], int]:
    words = generator.choice(([], ["i", "thought"], ["today"], ["today", "i", "thought"]))
    friendly = generator.random() < 0.5
    # The opinion after "but" counts.
    if generator.random() < 0.4:
        words = [*words, *_opinion(generator, friendly=not friendly), "but"]
    words = [*words, *_opinion(generator, friendly=friendly)]
    return words, int(friendly ^ (generator.random() < _FLIPPED_LABEL_SHARE))


def _opinion(generator: random.Random, *, friendly: bool) -> list[str]:
    negated = generator.random() < 0.25
    adjective = generator.choice(_FRIENDLY if friendly ^ negated else _UNFRIENDLY)
    degree = [generator.choice(_DEGREES)] if generator.random() < 0.4 else []
    return ["the", generator.choice(_SUBJECTS), "was", *(["not"] if negated else []), *degree, adjective]


def _word_indices(words: list[str]) -> list[int]:
    numbers = [VOCABULARY.index(word) for word in words][:MAX_WORDS]
    return numbers + [PADDING] * (MAX_WORDS - len(numbers))


class ReviewReader(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Reads word by word and classifies the state after the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(VOCABULARY), 24, padding_idx=PADDING)
        self.gru = nn.GRU(24, 32, batch_first=True)
        self.hidden = nn.Linear(32, 16)
        self.tanh = nn.Tanh()
        self.output = nn.Linear(16, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(self.embedding(words))
        last = (words != PADDING).sum(1) - 1
        final_state = states[torch.arange(len(words)), last]
        return self.output(self.tanh(self.hidden(final_state)))


def prepare_rnn(seed: int) -> Setup:
    """Train with Adam and clipped gradients; evaluate once, at the end."""
    training, evaluation = split(make_reviews(2000, seed=seed), seed=seed)
    model = ReviewReader()
    return Setup(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=torch.optim.Adam(model.parameters(), lr=5e-3),
        batches=make_batches(training, 50, seed=seed),
        evaluation=evaluation,
        epochs=8,
        metric=accuracy,
        max_gradient_norm=1.0,
        evaluates_each_epoch=False,
    )


class Attention(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Causal self-attention over letters."""

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


class DecoderBlock(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Attention, then an MLP, each with a residual connection."""

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
    """Scores for the letter after each letter, with classes in the second dimension, as for CrossEntropyLoss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS), _WIDTH)
        self.position = nn.Embedding(_LENGTH, _WIDTH)
        self.blocks = nn.ModuleList([DecoderBlock(), DecoderBlock()])
        self.norm = nn.LayerNorm(_WIDTH)
        self.output = nn.Linear(_WIDTH, len(LETTERS))

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        states = self.embedding(letters) + self.position(torch.arange(letters.shape[1]))
        for block in self.blocks:
            states = block(states)
        return self.output(self.norm(states)).transpose(1, 2)


def prepare_transformer(seed: int) -> Setup:
    """Train with AdamW, a warm-up followed by a cosine schedule, and clipped gradients."""
    training, evaluation = split(_windows(seed), seed=seed)
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    batches = make_batches(training, 32, seed=seed)
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
        schedule=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate_factor(step, steps)),
        max_gradient_norm=1.0,
        records_labels=False,
    )


def _rate_factor(step: int, steps: int) -> float:
    if step < _WARM_UP_STEPS:
        return (step + 1) / _WARM_UP_STEPS
    return 0.05 + 0.95 * (1 + math.cos(math.pi * (step - _WARM_UP_STEPS) / (steps - _WARM_UP_STEPS))) / 2


def _windows(seed: int) -> Samples:
    text = ". ".join(make_sentences(_REVIEWS, seed=seed))
    numbers = torch.tensor([LETTERS.index(letter) for letter in text])
    windows = numbers.unfold(0, _LENGTH + 1, _LENGTH)
    return Samples(windows[:, :-1].contiguous(), windows[:, 1:].contiguous())
