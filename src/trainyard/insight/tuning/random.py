"""Random search: the baseline that every other strategy has to beat."""

from collections.abc import Mapping, Sequence

import numpy as np

from trainyard.insight.tuning.contract import Observation, Value
from trainyard.insight.tuning.space import Space

# Draws before the untried points of a finite space are searched one by one.
_MAX_DRAWS = 32


class RandomStrategy:
    """Suggests random points, uniform on the scale of each range.

    A point is repeated only when no other is left: trainings are noisy, and the user asked for that many trials.
    """

    def __init__(self, space: Space, *, seed: int) -> None:
        self._space = space
        self._seed = seed

    def suggest(self, history: Sequence[Observation], *, number: int) -> Mapping[str, Value]:
        generator = np.random.default_rng([self._seed, number])
        drawn = [self._space.decode(row) for row in self._space.sample(generator, _MAX_DRAWS)]
        tried = {self._space.key(observation.values) for observation in history}
        fresh = (point for point in drawn if self._space.key(point) not in tried)
        return next(fresh, None) or self._first_untried(tried, generator) or drawn[0]

    def _first_untried(
        self, tried: set[tuple[Value | None, ...]], generator: np.random.Generator
    ) -> Mapping[str, Value] | None:
        if self._space.size is None:
            return None
        return next((point for point in self._space.walk(generator) if self._space.key(point) not in tried), None)
