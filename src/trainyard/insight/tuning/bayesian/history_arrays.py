"""The history of a study as arrays, with a loss and a noise variance for each trial."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainyard.foundation.jobs.tuning import Direction
from trainyard.insight.tuning.bayesian.kernel import Array
from trainyard.insight.tuning.contract import Observation, State, Value
from trainyard.insight.tuning.space import Space

# The extra noise variance of the predicted final loss of a trial that was cut short; that of all trials is 1.
_CUT_SHORT_NOISE_VARIANCE = 0.1


@dataclass(frozen=True, slots=True)
class HistoryArrays:
    """The history as arrays. Losses are lower for better trials; `sources` is 0 for the target task, else its parent.

    Trials of parents with the same function count as trials of the target task; `is_own_trial` marks those that really
    are of this study. `failed` are trials of the target task, `failed_in_sources` those of source tasks.
    """

    rows: Array
    losses: Array
    extra_noise: Array
    sources: NDArray[np.intp]
    is_own_trial: NDArray[np.bool_]
    pending: Array
    failed: Array
    failed_in_sources: Array
    tried: frozenset[tuple[Value | None, ...]]

    @property
    def is_target(self) -> NDArray[np.bool_]:
        return np.asarray(self.sources == 0)

    def target_only(self) -> "HistoryArrays":
        """Return the arrays without the source tasks."""
        return replace(self.select(np.flatnonzero(self.is_target)), failed_in_sources=self.failed_in_sources[:0])

    def select(self, indices: NDArray[np.intp]) -> "HistoryArrays":
        """Return the arrays with these measurements only."""
        return replace(
            self,
            rows=self.rows[indices],
            losses=self.losses[indices],
            extra_noise=self.extra_noise[indices],
            sources=self.sources[indices],
            is_own_trial=self.is_own_trial[indices],
        )


def history_arrays(
    space: Space, history: Sequence[Observation], *, direction: Direction, same_task_sources: Collection[str] = ()
) -> HistoryArrays:
    """Convert a history to arrays; observations with a value that the space no longer has are left out.

    `same_task_sources` are the sources with the same function as this study.
    """
    sign = -1.0 if direction is Direction.MAXIMIZE else 1.0
    encoded = [(each, space.encode(each.values)) for each in history]
    known = [(each, row) for each, row in encoded if row is not None]
    source_names = sorted({each.source for each, _ in known} - {"", *same_task_sources})
    target = [(each, row) for each, row in known if each.source not in source_names]
    failed = [(each, row) for each, row in known if each.state is State.FAILED]
    groups = [target, *([pair for pair in known if pair[0].source == name] for name in source_names)]
    parts = [_measured_arrays(group, sign) for group in groups]
    return HistoryArrays(
        rows=_stack([row for part in parts for row in part.rows], space.dimension),
        losses=np.array([loss for part in parts for loss in part.losses]),
        extra_noise=np.array([noise for part in parts for noise in part.extra_noise]),
        sources=np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts]),
        is_own_trial=np.array([is_own for part in parts for is_own in part.is_own_trial], dtype=np.bool_),
        pending=_stack([row for each, row in target if each.state is State.PENDING], space.dimension),
        failed=_stack([row for each, row in failed if each.source not in source_names], space.dimension),
        failed_in_sources=_stack([row for each, row in failed if each.source in source_names], space.dimension),
        tried=frozenset(space.key(space.decode(row)) for _, row in target),
    )


@dataclass(frozen=True, slots=True)
class _TaskArrays:
    rows: list[Array]
    losses: list[float]
    extra_noise: list[float]
    is_own_trial: list[bool]


def _measured_arrays(known: Sequence[tuple[Observation, Array]], sign: float) -> _TaskArrays:
    """Collect the trials of one task that say something about the objective."""
    measured = [each for each, _ in known if each.state is State.MEASURED]
    finals = [(each, sign * each.value) for each in measured if each.value is not None and np.isfinite(each.value)]
    part = _TaskArrays([], [], [], [])
    if not finals:
        return part
    losses = np.array([loss for _, loss in finals])
    for each, row in known:
        loss = _loss(each, sign, finals=finals, losses=losses)
        if loss is not None:
            part.rows.append(row)
            part.is_own_trial.append(not each.source)
            part.losses.append(loss)
            part.extra_noise.append(_CUT_SHORT_NOISE_VARIANCE if each.state is State.CUT_SHORT else 0.0)
    return part


def _loss(
    each: Observation, sign: float, *, finals: Sequence[tuple[Observation, float]], losses: Array
) -> float | None:
    if each.state in (State.PENDING, State.FAILED):
        return None
    if each.state is State.DIVERGED or each.value is None or not np.isfinite(each.value):
        return float(np.max(losses))
    if each.state is State.CUT_SHORT:
        return max(_predict_final_loss(each, sign, finals=finals), float(np.median(losses)))
    return sign * each.value


def _predict_final_loss(each: Observation, sign: float, *, finals: Sequence[tuple[Observation, float]]) -> float:
    """Predict the final loss of a trial that was cut short, from the median change of the complete trials."""
    assert each.value is not None, "a trial without a value cannot be extrapolated"
    at = len(each.curve) - 1
    changes = [loss - sign * other.curve[at] for other, loss in finals if 0 <= at < len(other.curve)]
    finite = [change for change in changes if np.isfinite(change)]
    return sign * each.value + (float(np.median(finite)) if finite else 0.0)


def _stack(rows: Sequence[Array], dimension: int) -> Array:
    return np.array(rows).reshape(len(rows), dimension)
