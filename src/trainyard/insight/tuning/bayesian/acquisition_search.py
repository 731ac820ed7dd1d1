"""Maximises the acquisition function: many random candidates, then gradient ascent from the best of them."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainyard.insight.tuning.bayesian.acquisition import Acquisition
from trainyard.insight.tuning.bayesian.kernel import Array
from trainyard.insight.tuning.contract import Value
from trainyard.insight.tuning.space import Space

# A discrete axis with more values is searched at this many of them, evenly spaced.
_MAX_CHOICES = 32
# Neighbours that are scored at once, of all starting points together.
_MAX_NEIGHBOURS = 3000
# Standard deviations of the steps away from a good point.
_PERTURBATION_SCALES = (0.2, 0.05, 0.01, 0.001)
# Starting points differ by more than this along at least one axis.
_MIN_START_DISTANCE = 0.02


@dataclass(frozen=True, slots=True)
class SearchEffort:
    candidates: int = 1024
    neighbours: int = 512
    starts: int = 8
    steps: int = 40
    rounds: int = 4


_DEFAULT_EFFORT = SearchEffort()


class AcquisitionSearch:
    """Searches the best untried point of a space. `tried` are keys of `Space.key`."""

    def __init__(
        self, space: Space, tried: Collection[tuple[Value | None, ...]], *, effort: SearchEffort = _DEFAULT_EFFORT
    ) -> None:
        self._space = space
        self._tried = tried
        self._effort = effort
        self._choices = [_choices(space, axis) for axis in range(space.dimension)]
        steps = sum(len(choices) for choices in self._choices if choices is not None)
        self._start_count = max(2, min(effort.starts, _MAX_NEIGHBOURS // max(1, steps)))
        smooth = [axis.count is None or axis.count > _MAX_CHOICES for axis in space.axes]
        self._free = np.array(smooth, dtype=np.bool_) & ~space.categorical

    def best(self, acquisition: Acquisition, anchors: Array, *, generator: np.random.Generator) -> dict[str, Value]:
        """Return the untried point with the highest score, near one of the `anchors` or anywhere.

        If all points are tried, return the best of them: a repeated training may give another result.
        """
        candidates = self._candidates(anchors, generator)
        scores = acquisition.values(candidates)
        starts = candidates[_distinct_best(candidates, scores, count=self._start_count)]
        refined = self._refine(acquisition, starts)
        finalists = np.concatenate([refined, candidates])
        scores = np.concatenate([acquisition.values(refined), scores])
        order = np.argsort(-scores, kind="stable")
        points = (self._space.decode(row) for row in finalists[order])
        untried = next((point for point in points if self._space.key(point) not in self._tried), None)
        return untried or self.any_untried(generator) or self._space.decode(finalists[order[0]])

    def _candidates(self, anchors: Array, generator: np.random.Generator) -> Array:
        everywhere = self._space.sample(generator, self._effort.candidates)
        if not len(anchors):
            return everywhere
        near = anchors[np.arange(self._effort.neighbours) % len(anchors)]
        return np.concatenate([everywhere, self._space.snap(self._perturb(near, generator))])

    def _perturb(self, rows: Array, generator: np.random.Generator) -> Array:
        """Change some coordinates of each row: numbers by a little, categories to any other."""
        count, dimension = rows.shape
        touched = generator.random(rows.shape) < generator.choice([1.0, 2.0 / max(2, dimension)], size=(count, 1))
        touched[np.arange(count), generator.integers(dimension, size=count)] = True
        scale = generator.choice(_PERTURBATION_SCALES, size=(count, 1))
        moved = np.clip(rows + scale * generator.standard_normal(rows.shape), 0.0, 1.0)
        fresh = self._space.sample(generator, count)
        changed = generator.random(rows.shape) < np.sqrt(scale)
        moved[:, self._space.categorical] = np.where(changed, fresh, rows)[:, self._space.categorical]
        return np.where(touched, moved, rows)

    def _refine(self, acquisition: Acquisition, rows: Array) -> Array:
        if self._free.all():
            return ascend(acquisition, rows, free=self._free, steps=self._effort.steps)
        for _ in range(self._effort.rounds):
            before = rows
            if self._free.any():
                rows = ascend(acquisition, rows, free=self._free, steps=self._effort.steps)
            rows = self._step_discrete(acquisition, self._space.snap(rows))
            if np.array_equal(rows, before):
                break
        return rows

    def _step_discrete(self, acquisition: Acquisition, rows: Array) -> Array:
        """Change the one discrete coordinate of each row that improves its score most, if any does."""
        neighbours, origins = [rows], [np.arange(len(rows))]
        for axis, values in enumerate(self._choices):
            if values is None:
                continue
            changed = np.repeat(rows, len(values), axis=0)
            changed[:, axis] = np.tile(values, len(rows))
            neighbours.append(changed)
            origins.append(np.repeat(np.arange(len(rows)), len(values)))
        all_rows, origin = np.concatenate(neighbours), np.concatenate(origins)
        scores = acquisition.values(all_rows)
        best = [_first_best(np.flatnonzero(origin == index), scores) for index in range(len(rows))]
        return all_rows[best]

    def any_untried(self, generator: np.random.Generator) -> dict[str, Value] | None:
        """Return any untried point; None if all are tried, or if the space is not finite."""
        if self._space.size is None or self._space.size <= len(self._tried):
            return None
        return next(point for point in self._space.walk(generator) if self._space.key(point) not in self._tried)


def ascend(acquisition: Acquisition, rows: Array, *, free: NDArray[np.bool_], steps: int) -> Array:
    """Move all rows uphill along their free coordinates within the unit cube, by a quasi-Newton method (BFGS)."""
    state = _Ascent(acquisition, rows, np.flatnonzero(free))
    for _ in range(steps):
        if not state.step():
            break
    return state.rows


class _Ascent:
    """The state of a BFGS ascent of many rows at once, each with its own inverse Hessian and step size."""

    def __init__(self, acquisition: Acquisition, rows: Array, free: NDArray[np.intp]) -> None:
        self.rows = rows.copy()
        self._acquisition = acquisition
        self._free = free
        self._scores, gradients = acquisition.values_and_gradients(self.rows)
        self._gradients = gradients[:, free]
        norms = np.linalg.norm(self._gradients, axis=1)
        first = np.minimum(0.1 / np.maximum(norms, 1e-300), 1.0)
        self._inverse_hessians = first[:, None, None] * np.eye(len(free))
        self._step_sizes = np.ones(len(rows))
        self._is_initial = np.ones(len(rows), dtype=np.bool_)

    def step(self) -> bool:
        """Take a step; return whether another one may help."""
        at = self.rows[:, self._free]
        moved = np.clip(at + self._step_sizes[:, None] * self._directions(at), 0.0, 1.0)
        rows = self.rows.copy()
        rows[:, self._free] = moved
        scores, gradients = self._acquisition.values_and_gradients(rows)
        gradients = gradients[:, self._free]
        is_better = scores > self._scores
        self._update_hessians(moved - at, self._gradients - gradients, is_better)
        gain = np.max(np.where(is_better, scores - self._scores, 0.0))
        self.rows[is_better] = rows[is_better]
        self._gradients[is_better] = gradients[is_better]
        self._scores[is_better] = scores[is_better]
        self._step_sizes = np.where(is_better, 1.0, 0.25 * self._step_sizes)
        return bool(gain > 1e-9 or np.any(self._step_sizes[~is_better] > 1e-3))

    def _directions(self, at: Array) -> Array:
        """Return the search direction of each row; at a face of the cube that it would leave, along that face."""
        is_blocked = ((at <= 0.0) & (self._gradients < 0.0)) | ((at >= 1.0) & (self._gradients > 0.0))
        uphill = np.where(is_blocked, 0.0, self._gradients)
        directions = np.where(is_blocked, 0.0, np.einsum("rij,rj->ri", self._inverse_hessians, uphill))
        return np.clip(directions, -0.5, 0.5)

    def _update_hessians(self, moves: Array, gradient_changes: Array, is_better: NDArray[np.bool_]) -> None:
        curvature = np.sum(moves * gradient_changes, axis=1)
        learning = is_better & (curvature > 1e-14)
        if not learning.any():
            return
        s, y = moves[learning], gradient_changes[learning]
        rho = 1.0 / curvature[learning]
        known = self._inverse_hessians[learning]
        fresh = self._is_initial[learning]
        known[fresh] = (curvature[learning] / np.maximum(np.sum(y * y, axis=1), 1e-300))[fresh, None, None] * np.eye(
            s.shape[1]
        )
        projection = np.eye(s.shape[1]) - rho[:, None, None] * s[:, :, None] * y[:, None, :]
        updated = (
            projection @ known @ projection.transpose(0, 2, 1) + rho[:, None, None] * s[:, :, None] * s[:, None, :]
        )
        self._inverse_hessians[learning] = updated
        self._is_initial[learning] = False


def _choices(space: Space, axis: int) -> Array | None:
    """Return the coordinates of a discrete axis that are tried one by one."""
    count = space.axes[axis].count
    if count is None:
        return None
    places = np.unique(np.linspace(0, count - 1, min(count, _MAX_CHOICES)).round().astype(int))
    coordinates = [space.axes[axis].coordinate(space.axes[axis].nth(int(place))) for place in places]
    return np.array([each for each in coordinates if each is not None])


def _distinct_best(rows: Array, scores: Array, *, count: int) -> list[int]:
    """Return the indices of the best row and of further good ones that are not close neighbours."""
    chosen: list[int] = []
    for index in np.argsort(-scores, kind="stable")[: 16 * count]:
        distances = np.max(np.abs(rows[chosen] - rows[index]), axis=1) if chosen else np.array([np.inf])
        if np.min(distances) > _MIN_START_DISTANCE:
            chosen.append(int(index))
        if len(chosen) == count:
            break
    return chosen


def _first_best(indices: NDArray[np.intp], scores: Array) -> int:
    return int(indices[np.argmax(scores[indices])])
