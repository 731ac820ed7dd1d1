"""Finding the point that is worth most: many candidates, then steps uphill from the best of them."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainyard.insight.tuning.bayesian.acquisition import Acquisition
from trainyard.insight.tuning.bayesian.kernels import Array
from trainyard.insight.tuning.contract import Value
from trainyard.insight.tuning.space import Space

_FEW = 32  # values of an axis that are all tried; of more, as many of them as this
_MOST_STEPS = 3000  # that are weighed at once, of all that climb
_SCALES = (0.2, 0.05, 0.01, 0.001)  # of the steps away from a good point


@dataclass(frozen=True, slots=True)
class Effort:
    candidates: int = 1024
    neighbours: int = 512
    climbers: int = 8
    steps: int = 40
    rounds: int = 4


_USUAL = Effort()


class Search:
    """Looks for the best untaken point of a space. `taken` are keys of `Space.key`."""

    def __init__(self, space: Space, taken: Collection[tuple[Value | None, ...]], *, effort: Effort = _USUAL) -> None:
        self._space = space
        self._taken = taken
        self._effort = effort
        self._choices = [_choices(space, axis) for axis in range(space.dimension)]
        steps = sum(len(choices) for choices in self._choices if choices is not None)
        self._climbers = max(2, min(effort.climbers, _MOST_STEPS // max(1, steps)))
        smooth = [axis.count is None or axis.count > _FEW for axis in space.axes]
        self._free = np.array(smooth, dtype=np.bool_) & ~space.categorical

    def best(self, acquisition: Acquisition, anchors: Array, *, generator: np.random.Generator) -> dict[str, Value]:
        """The untaken point that is worth most, near one of the `anchors` or anywhere.

        Where all points are taken it is the best of them: trainings differ from one time to the next.
        """
        candidates = self._candidates(anchors, generator)
        worth = acquisition.values(candidates)
        climbers = candidates[_leaders(candidates, worth, count=self._climbers)]
        climbed = self._improved(acquisition, climbers)
        finalists = np.concatenate([climbed, candidates])
        worth = np.concatenate([acquisition.values(climbed), worth])
        order = np.argsort(-worth, kind="stable")
        points = (self._space.decode(row) for row in finalists[order])
        found = next((point for point in points if self._space.key(point) not in self._taken), None)
        return found or self.any_left(generator) or self._space.decode(finalists[order[0]])

    def _candidates(self, anchors: Array, generator: np.random.Generator) -> Array:
        anywhere = self._space.sample(generator, self._effort.candidates)
        if not len(anchors):
            return anywhere
        near = anchors[np.arange(self._effort.neighbours) % len(anchors)]
        return np.concatenate([anywhere, self._space.snap(self._perturbed(near, generator))])

    def _perturbed(self, rows: Array, generator: np.random.Generator) -> Array:
        """Each row with some of its coordinates changed: numbers by a little, categories to any."""
        count, dimension = rows.shape
        touched = generator.random(rows.shape) < generator.choice([1.0, 2.0 / max(2, dimension)], size=(count, 1))
        touched[np.arange(count), generator.integers(dimension, size=count)] = True
        scale = generator.choice(_SCALES, size=(count, 1))
        moved = np.clip(rows + scale * generator.standard_normal(rows.shape), 0.0, 1.0)
        fresh = self._space.sample(generator, count)
        changed = generator.random(rows.shape) < np.sqrt(scale)
        moved[:, self._space.categorical] = np.where(changed, fresh, rows)[:, self._space.categorical]
        return np.where(touched, moved, rows)

    def _improved(self, acquisition: Acquisition, rows: Array) -> Array:
        if self._free.all():
            return climb(acquisition, rows, free=self._free, steps=self._effort.steps)
        for _ in range(self._effort.rounds):
            before = rows
            if self._free.any():
                rows = climb(acquisition, rows, free=self._free, steps=self._effort.steps)
            rows = self._stepped(acquisition, self._space.snap(rows))
            if np.array_equal(rows, before):
                break
        return rows

    def _stepped(self, acquisition: Acquisition, rows: Array) -> Array:
        """Each row with the one discrete coordinate changed that helps it most, if one does."""
        neighbours, origins = [rows], [np.arange(len(rows))]
        for axis, values in enumerate(self._choices):
            if values is None:
                continue
            changed = np.repeat(rows, len(values), axis=0)
            changed[:, axis] = np.tile(values, len(rows))
            neighbours.append(changed)
            origins.append(np.repeat(np.arange(len(rows)), len(values)))
        all_rows, origin = np.concatenate(neighbours), np.concatenate(origins)
        worth = acquisition.values(all_rows)
        best = [_first_best(np.flatnonzero(origin == index), worth) for index in range(len(rows))]
        return all_rows[best]

    def any_left(self, generator: np.random.Generator) -> dict[str, Value] | None:
        """Any untaken point; None where all are taken, and where no end of them is."""
        if self._space.size is None or self._space.size <= len(self._taken):
            return None
        return next(point for point in self._space.walk(generator) if self._space.key(point) not in self._taken)


def climb(acquisition: Acquisition, rows: Array, *, free: NDArray[np.bool_], steps: int) -> Array:
    """The rows after steps uphill by their free coordinates within the unit cube, all at once.

    Quasi-Newton: each row learns the curvature around it from the gradients on its way.
    """
    state = _Climb(acquisition, rows, np.flatnonzero(free))
    for _ in range(steps):
        if not state.step():
            break
    return state.rows


class _Climb:
    def __init__(self, acquisition: Acquisition, rows: Array, free: NDArray[np.intp]) -> None:
        self.rows = rows.copy()
        self._acquisition = acquisition
        self._free = free
        self._worth, gradients = acquisition.values_and_gradients(self.rows)
        self._gradients = gradients[:, free]
        lengths = np.linalg.norm(self._gradients, axis=1)
        first = np.minimum(0.1 / np.maximum(lengths, 1e-300), 1.0)
        self._inverse_hessians = first[:, None, None] * np.eye(len(free))
        self._sizes = np.ones(len(rows))
        self._is_fresh = np.ones(len(rows), dtype=np.bool_)

    def step(self) -> bool:
        """Whether it may pay to take another one."""
        at = self.rows[:, self._free]
        moved = np.clip(at + self._sizes[:, None] * self._directions(at), 0.0, 1.0)
        rows = self.rows.copy()
        rows[:, self._free] = moved
        worth, gradients = self._acquisition.values_and_gradients(rows)
        gradients = gradients[:, self._free]
        better = worth > self._worth
        self._learn(moved - at, self._gradients - gradients, better)
        gain = np.max(np.where(better, worth - self._worth, 0.0))
        self.rows[better] = rows[better]
        self._gradients[better] = gradients[better]
        self._worth[better] = worth[better]
        self._sizes = np.where(better, 1.0, 0.25 * self._sizes)
        return bool(gain > 1e-9 or np.any(self._sizes[~better] > 1e-3))

    def _directions(self, at: Array) -> Array:
        """Uphill for each row, along the faces of the cube where it stands at one that it would leave."""
        stuck = ((at <= 0.0) & (self._gradients < 0.0)) | ((at >= 1.0) & (self._gradients > 0.0))
        pull = np.where(stuck, 0.0, self._gradients)
        directions = np.where(stuck, 0.0, np.einsum("rij,rj->ri", self._inverse_hessians, pull))
        return np.clip(directions, -0.5, 0.5)

    def _learn(self, moves: Array, turns: Array, better: NDArray[np.bool_]) -> None:
        curvature = np.sum(moves * turns, axis=1)
        learning = better & (curvature > 1e-14)
        if not learning.any():
            return
        s, y = moves[learning], turns[learning]
        rho = 1.0 / curvature[learning]
        known = self._inverse_hessians[learning]
        fresh = self._is_fresh[learning]
        known[fresh] = (curvature[learning] / np.maximum(np.sum(y * y, axis=1), 1e-300))[fresh, None, None] * np.eye(
            s.shape[1]
        )
        turned = np.eye(s.shape[1]) - rho[:, None, None] * s[:, :, None] * y[:, None, :]
        updated = turned @ known @ turned.transpose(0, 2, 1) + rho[:, None, None] * s[:, :, None] * s[:, None, :]
        self._inverse_hessians[learning] = updated
        self._is_fresh[learning] = False


def _choices(space: Space, axis: int) -> Array | None:
    """The coordinates of a discrete axis that are tried one by one."""
    count = space.axes[axis].count
    if count is None:
        return None
    places = np.unique(np.linspace(0, count - 1, min(count, _FEW)).round().astype(int))
    coordinates = [space.axes[axis].coordinate(space.axes[axis].nth(int(place))) for place in places]
    return np.array([each for each in coordinates if each is not None])


def _leaders(rows: Array, worth: Array, *, count: int) -> list[int]:
    """The best row and further good ones that are not its close neighbours."""
    chosen: list[int] = []
    for index in np.argsort(-worth, kind="stable")[: 16 * count]:
        distances = np.max(np.abs(rows[chosen] - rows[index]), axis=1) if chosen else np.array([np.inf])
        if np.min(distances) > 0.02:
            chosen.append(int(index))
        if len(chosen) == count:
            break
    return chosen


def _first_best(indices: NDArray[np.intp], worth: Array) -> int:
    return int(indices[np.argmax(worth[indices])])
