"""Grid search: every combination once."""

from collections.abc import Mapping, Sequence

import numpy as np

from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.tuning.contract import Observation, Value
from trainyard.insight.tuning.space import Space


class GridStrategy:
    """Suggests every point of a space without continuous ranges once, in random order.

    In the order of the ranges, the first trials would all have the same first hyperparameter. In random order, a grid
    that is stopped midway has covered some of everything. The history alone tells which points are left.
    """

    def __init__(self, space: Space, *, seed: int) -> None:
        if space.size is None:
            raise InvalidRequest(
                "A grid cannot contain a continuous range, because it has infinitely many values. "
                "Give categorical ranges, or choose another strategy."
            )
        self._space = space
        self._seed = seed

    def suggest(
        self,
        history: Sequence[Observation],
        *,
        number: int,  # noqa: ARG002 - the points that are left do not depend on the number
    ) -> Mapping[str, Value] | None:
        tried = {self._space.key(observation.values) for observation in history}
        order = self._space.walk(np.random.default_rng(self._seed))
        return next((point for point in order if self._space.key(point) not in tried), None)
