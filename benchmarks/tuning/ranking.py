"""Mean ranks of engines over many problems, with confidence intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
# By engine, at the end of its studies of one problem.
Regrets = Mapping[str, Array]

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Standing:
    """The mean rank of an engine, 1 for the best, with its 95 % bootstrap interval."""

    rank: float
    low: float
    high: float
    # The fraction of draws in which no other engine has a better mean rank.
    is_best: float


def ranks(regrets: Regrets) -> dict[str, float]:
    """Return the expected rank of each engine when one study of each is drawn; equal regrets share a rank.

    It is one more than the sum of the probabilities that another engine is better, so engines may have different
    numbers of studies.
    """
    return dict(zip(regrets, _Contest(regrets).ranks(None).tolist(), strict=True))


def standings(problems: Sequence[Regrets]) -> dict[str, Standing]:
    """Return the mean ranks over problems, with intervals from a bootstrap over problems and studies."""
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
        """Return the ranks of the engines, in order; with `chance`, of a bootstrap sample of the studies."""
        weights = np.zeros((len(self._counts), sum(self._counts)))
        start = 0
        for row, count in enumerate(self._counts):
            drawn = np.ones(count) if chance is None else chance.multinomial(count, np.full(count, 1 / count))
            weights[row, start : start + count] = drawn / count
            start += count
        losses: Array = weights @ self._losses @ weights.T
        return np.array(1 + losses.sum(axis=1) - losses.diagonal())
