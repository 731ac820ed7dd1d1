"""Where to look first, when nothing is known: a few points that are spread well."""

import numpy as np

from trainyard.insight.tuning.bayesian.kernels import Array
from trainyard.insight.tuning.space import Space

_TRIES = 64


def spread_points(space: Space, count: int, *, generator: np.random.Generator) -> Array:
    """Of some Latin hypercubes by chance the one whose closest points are farthest apart."""
    hypercubes = [_hypercube(space.dimension, count, generator) for _ in range(_TRIES)]
    designs = [space.spread(units) for units in hypercubes]
    closest = [_least_distance(space, rows) for rows in designs]
    return designs[int(np.argmax(closest))]


def _hypercube(dimension: int, count: int, generator: np.random.Generator) -> Array:
    cells = np.argsort(generator.random((dimension, count)), axis=1).T
    return (cells + generator.random((count, dimension))) / count


def _least_distance(space: Space, rows: Array) -> float:
    if len(rows) < 2:
        return 0.0
    differences = np.abs(rows[:, None, :] - rows[None, :, :])
    differences[:, :, space.categorical] = differences[:, :, space.categorical] > 0.0
    distances = np.sum(differences**2, axis=2)
    return float(np.min(distances[np.triu_indices(len(rows), 1)]))
