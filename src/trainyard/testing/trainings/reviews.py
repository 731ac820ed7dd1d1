"""Short reviews, written at random: most are what their words say, some readers disagree."""

import random

import torch

from trainyard.testing.trainings.samples import Samples

PADDING = 0
UNKNOWN = 1
_SUBJECTS = ("book", "film", "meal", "hotel", "train", "song", "play", "garden", "teacher", "game")
_FRIENDLY = ("good", "lovely", "great", "fine", "clever", "warm", "bright", "kind")
_UNFRIENDLY = ("bad", "dull", "poor", "awful", "cold", "slow", "rude", "weak")
_DEGREES = ("very", "quite", "really", "rather")
_OTHERS = ("the", "was", "not", "and", "but", "i", "thought", "today")
VOCABULARY = ("<padding>", "<unknown>", *_OTHERS, *_DEGREES, *_SUBJECTS, *_FRIENDLY, *_UNFRIENDLY)
LONGEST = 14
_DISAGREEING = 0.03  # the share of readers who say the opposite


def written(count: int, *, seed: int) -> Samples:
    """Reviews as numbers of words, filled up to the longest, and 1 for the friendly ones."""
    chance = random.Random(seed)
    pairs = [_review(chance) for _ in range(count)]
    return Samples(torch.tensor([_numbers(words) for words, _ in pairs]), torch.tensor([label for _, label in pairs]))


def sentences(count: int, *, seed: int) -> list[str]:
    """Reviews as text."""
    chance = random.Random(seed)
    return [" ".join(_review(chance)[0]) for _ in range(count)]


def _review(chance: random.Random) -> tuple[list[str], int]:
    words = chance.choice(([], ["i", "thought"], ["today"], ["today", "i", "thought"]))
    friendly = chance.random() < 0.5
    # What comes after "but" is what was meant.
    if chance.random() < 0.4:
        words = [*words, *_opinion(chance, friendly=not friendly), "but"]
    words = [*words, *_opinion(chance, friendly=friendly)]
    return words, int(friendly ^ (chance.random() < _DISAGREEING))


def _opinion(chance: random.Random, *, friendly: bool) -> list[str]:
    negated = chance.random() < 0.25
    adjective = chance.choice(_FRIENDLY if friendly ^ negated else _UNFRIENDLY)
    degree = [chance.choice(_DEGREES)] if chance.random() < 0.4 else []
    return ["the", chance.choice(_SUBJECTS), "was", *(["not"] if negated else []), *degree, adjective]


def _numbers(words: list[str]) -> list[int]:
    numbers = [VOCABULARY.index(word) for word in words][:LONGEST]
    return numbers + [PADDING] * (LONGEST - len(numbers))
