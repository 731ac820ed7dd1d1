"""Who does best over many problems, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Regrets = Mapping[str, Array]  # by engine: at the end of its studies of one problem

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Standing:
    """The mean rank of an engine, 1 the best, with the middle 95 % of what it is when chance is drawn again."""

    rank: float
    low: float
    high: float
    is_best: float  # in which share of these draws no other engine has a better mean rank


def ranks(regrets: Regrets) -> dict[str, float]:
    """The rank that each engine has on average when one study of each is drawn; equal regrets share a rank.

    It is one more than the sum of the probabilities that another is better, so that engines need not have equally many
    studies.
    """
    return dict(zip(regrets, _Contest(regrets).ranks(None).tolist(), strict=True))


def standings(problems: Sequence[Regrets]) -> dict[str, Standing]:
    """The mean ranks over problems, with their spread when problems and studies are drawn again with replacement."""
    contests = [_Contest(regrets) for regrets in problems]
    chance = np.random.default_rng(0)
    observed = np.mean([contest.ranks(None) for contest in contests], axis=0)
    drawn = np.array([_redrawn(contests, chance) for _ in range(RESAMPLES)])
    lows, highs = np.quantile(drawn, [0.025, 0.975], axis=0)
    best = (drawn <= drawn.min(axis=1, keepdims=True)).mean(axis=0)
    return {
        engine: Standing(float(observed[i]), float(lows[i]), float(highs[i]), float(best[i]))
        for i, engine in enumerate(problems[0])
    }


def _redrawn(contests: Sequence["_Contest"], chance: np.random.Generator) -> Array:
    chosen = chance.integers(len(contests), size=len(contests))
    return np.array(np.mean([contests[place].ranks(chance) for place in chosen], axis=0))


class _Contest:
    """All studies of one problem against each other."""

    def __init__(self, regrets: Regrets) -> None:
        self._counts = [len(own) for own in regrets.values()]
        every = np.concatenate(list(regrets.values()))
        self._losses = (every[None, :] < every[:, None]) + 0.5 * (every[None, :] == every[:, None])

    def ranks(self, chance: np.random.Generator | None) -> Array:
        """Of the engines in their order; with chance, of as many studies of each drawn with replacement."""
        weights = np.zeros((len(self._counts), sum(self._counts)))
        start = 0
        for row, count in enumerate(self._counts):
            drawn = np.ones(count) if chance is None else chance.multinomial(count, np.full(count, 1 / count))
            weights[row, start : start + count] = drawn / count
            start += count
        losses: Array = weights @ self._losses @ weights.T
        return np.array(1 + losses.sum(axis=1) - losses.diagonal())
