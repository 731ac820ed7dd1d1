"""Search by chance: the measure that every other strategy has to beat."""

from collections.abc import Mapping, Sequence

import numpy as np

from trainyard.insight.tuning.contract import Observation, Value
from trainyard.insight.tuning.space import Space

_DRAWS = 32  # before the points that are left are looked for one after another


class RandomStrategy:
    """Points by chance, spread as the scales of the ranges say.

    A point that was tried is tried again only when no other is left: trainings are noisy, and as many were asked for.
    """

    def __init__(self, space: Space, *, seed: int) -> None:
        self._space = space
        self._seed = seed

    def suggest(self, history: Sequence[Observation], *, number: int) -> Mapping[str, Value]:
        generator = np.random.default_rng([self._seed, number])
        drawn = [self._space.decode(row) for row in self._space.sample(generator, _DRAWS)]
        tried = {self._space.key(observation.values) for observation in history}
        fresh = (point for point in drawn if self._space.key(point) not in tried)
        return next(fresh, None) or self._first_untried(tried, generator) or drawn[0]

    def _first_untried(
        self, tried: set[tuple[Value | None, ...]], generator: np.random.Generator
    ) -> Mapping[str, Value] | None:
        if self._space.size is None:
            return None
        return next((point for point in self._space.walk(generator) if self._space.key(point) not in tried), None)
