"""Search of every combination, each once."""

from collections.abc import Mapping, Sequence

import numpy as np

from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.tuning.contract import Observation, Value
from trainyard.insight.tuning.space import Space


class GridStrategy:
    """Every point of a space that has no continuous numbers, each once, in an order by chance.

    In the order of the ranges the first trials would all agree in the first hyperparameter; mixed, a grid that is
    stopped midway has seen something of everything. Which points are left is told from the history alone.
    """

    def __init__(self, space: Space, *, seed: int) -> None:
        if space.size is None:
            raise InvalidRequest(
                "A grid cannot hold a continuous range, which has no number of values. "
                "Give categorical ranges, or choose another strategy."
            )
        self._space = space
        self._seed = seed

    def suggest(
        self,
        history: Sequence[Observation],
        *,
        number: int,  # noqa: ARG002 - what is left is the same, whatever the number of the trial
    ) -> Mapping[str, Value] | None:
        tried = {self._space.key(observation.values) for observation in history}
        order = self._space.walk(np.random.default_rng(self._seed))
        return next((point for point in order if self._space.key(point) not in tried), None)
