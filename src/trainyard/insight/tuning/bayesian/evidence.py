"""What a history says, as arrays: every trial counts for what it is, and none for more."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainyard.foundation.tuning import Direction
from trainyard.insight.tuning.bayesian.kernels import Array
from trainyard.insight.tuning.contract import Observation, State, Value
from trainyard.insight.tuning.space import Space

_DOUBT = 0.1  # the variance of what a trial that was cut short would have come to, where 1 is that of all trials


@dataclass(frozen=True, slots=True)
class Evidence:
    """Losses are smaller for better trials. `sources` is 0 for trials of this study, and from 1 for each parent.

    Trials of parents that are the same function count as those of this study; `mine` are those that really are.
    `failed` are trials of this study, `failed_elsewhere` those of other parents.
    """

    rows: Array
    losses: Array
    doubts: Array
    sources: NDArray[np.intp]
    mine: NDArray[np.bool_]
    pending: Array
    failed: Array
    failed_elsewhere: Array
    taken: frozenset[tuple[Value | None, ...]]

    @property
    def own(self) -> NDArray[np.bool_]:
        return np.asarray(self.sources == 0)

    def alone(self) -> "Evidence":
        """What is known without the relatives."""
        return replace(self.only(np.flatnonzero(self.own)), failed_elsewhere=self.failed_elsewhere[:0])

    def only(self, indices: NDArray[np.intp]) -> "Evidence":
        """What is known by these measurements."""
        return replace(
            self,
            rows=self.rows[indices],
            losses=self.losses[indices],
            doubts=self.doubts[indices],
            sources=self.sources[indices],
            mine=self.mine[indices],
        )


def evidence_of(
    space: Space, history: Sequence[Observation], *, direction: Direction, alike: Collection[str] = ()
) -> Evidence:
    """What is known of the points of the space; what has a value that is gone is left out.

    `alike` are the sources that are the same function as this study.
    """
    sign = -1.0 if direction is Direction.MAXIMIZE else 1.0
    encoded = [(each, space.encode(each.values)) for each in history]
    known = [(each, row) for each, row in encoded if row is not None]
    apart = sorted({each.source for each, _ in known} - {"", *alike})
    own = [(each, row) for each, row in known if each.source not in apart]
    failed = [(each, row) for each, row in known if each.state is State.FAILED]
    groups = [own, *([pair for pair in known if pair[0].source == name] for name in apart)]
    parts = [_measured(group, sign) for group in groups]
    return Evidence(
        rows=_stacked([row for part in parts for row in part.rows], space.dimension),
        losses=np.array([loss for part in parts for loss in part.losses]),
        doubts=np.array([doubt for part in parts for doubt in part.doubts]),
        sources=np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts]),
        mine=np.array([is_mine for part in parts for is_mine in part.mine], dtype=np.bool_),
        pending=_stacked([row for each, row in own if each.state is State.PENDING], space.dimension),
        failed=_stacked([row for each, row in failed if each.source not in apart], space.dimension),
        failed_elsewhere=_stacked([row for each, row in failed if each.source in apart], space.dimension),
        taken=frozenset(space.key(space.decode(row)) for _, row in own),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    rows: list[Array]
    losses: list[float]
    doubts: list[float]
    mine: list[bool]


def _measured(known: Sequence[tuple[Observation, Array]], sign: float) -> _Part:
    """The trials of one study that say something about the objective."""
    measured = [each for each, _ in known if each.state is State.MEASURED]
    finals = [(each, sign * each.value) for each in measured if each.value is not None and np.isfinite(each.value)]
    part = _Part([], [], [], [])
    if not finals:
        return part
    losses = np.array([loss for _, loss in finals])
    for each, row in known:
        loss = _loss(each, sign, finals=finals, losses=losses)
        if loss is not None:
            part.rows.append(row)
            part.mine.append(not each.source)
            part.losses.append(loss)
            part.doubts.append(_DOUBT if each.state is State.CUT_SHORT else 0.0)
    return part


def _loss(
    each: Observation, sign: float, *, finals: Sequence[tuple[Observation, float]], losses: Array
) -> float | None:
    if each.state in (State.PENDING, State.FAILED):
        return None
    if each.state is State.DIVERGED or each.value is None or not np.isfinite(each.value):
        return float(np.max(losses))
    if each.state is State.CUT_SHORT:
        return max(_foretold(each, sign, finals=finals), float(np.median(losses)))
    return sign * each.value


def _foretold(each: Observation, sign: float, *, finals: Sequence[tuple[Observation, float]]) -> float:
    """What a trial that was cut short would have come to, had it gone on as those did that were not."""
    assert each.value is not None, "a trial without a value has nothing to go on from"
    at = len(each.curve) - 1
    changes = [loss - sign * other.curve[at] for other, loss in finals if 0 <= at < len(other.curve)]
    finite = [change for change in changes if np.isfinite(change)]
    return sign * each.value + (float(np.median(finite)) if finite else 0.0)


def _stacked(rows: Sequence[Array], dimension: int) -> Array:
    return np.array(rows).reshape(len(rows), dimension)
