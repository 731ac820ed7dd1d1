import math

import numpy as np
import pytest

from trainyard.foundation.tuning import Direction, ParameterRange, RangeKind, Scaling
from trainyard.insight.tuning.bayesian.evidence import evidence_of
from trainyard.insight.tuning.contract import Observation, State, Value
from trainyard.insight.tuning.space import Space

SPACE = Space(
    [
        ParameterRange("rate", RangeKind.CONTINUOUS, 0.0, 1.0, Scaling.LINEAR),
        ParameterRange("optimizer", RangeKind.CATEGORICAL, values=("sgd", "adam")),
    ]
)


def observed(rate: float, state: State, value: float | None = None, curve: tuple[float, ...] = ()) -> Observation:
    return Observation({"rate": rate, "optimizer": "adam"}, state, value, curve)


def losses(*history: Observation, direction: Direction = Direction.MINIMIZE) -> dict[float, float]:
    """What each trial that says something about the objective counts as, by its rate."""
    evidence = evidence_of(SPACE, history, direction=direction)
    return dict(zip(evidence.rows[:, 0].tolist(), evidence.losses.tolist(), strict=True))


@pytest.mark.parametrize(("direction", "worst"), [(Direction.MINIMIZE, 3.0), (Direction.MAXIMIZE, -1.0)])
def test_what_is_not_finite_or_diverged_counts_as_the_worst_measured(direction: Direction, worst: float) -> None:
    history = [
        observed(0.1, State.MEASURED, 1.0),
        observed(0.2, State.MEASURED, 3.0),
        observed(0.3, State.MEASURED, math.nan),
        observed(0.4, State.MEASURED, -math.inf),
        observed(0.5, State.MEASURED),
        observed(0.6, State.DIVERGED, 2.0),
    ]
    counted = losses(*history, direction=direction)
    assert [counted[rate] for rate in (0.3, 0.4, 0.5, 0.6)] == [worst] * 4


def test_a_trial_that_was_cut_short_counts_as_what_others_came_to_from_there() -> None:
    history = [
        observed(0.1, State.MEASURED, 2.0, (5.0, 3.0, 2.0)),
        observed(0.2, State.MEASURED, 1.0, (4.0, 2.0, 1.0)),
        observed(0.9, State.CUT_SHORT, 8.0, (9.0, 8.0)),
    ]
    assert losses(*history)[0.9] == 7.0  # others gained one after their second report


def test_a_trial_that_was_cut_short_is_never_better_than_the_median() -> None:
    history = [
        *(observed(0.1 * value, State.MEASURED, float(value)) for value in (1, 2, 3)),
        observed(0.9, State.CUT_SHORT, 0.5),
    ]
    assert losses(*history)[0.9] == 2.0


def test_only_what_was_cut_short_is_doubted() -> None:
    history = [observed(0.1, State.MEASURED, 1.0), observed(0.9, State.CUT_SHORT, 5.0)]
    doubts = evidence_of(SPACE, history, direction=Direction.MINIMIZE).doubts
    assert doubts[0] == 0.0
    assert doubts[1] > 0.0


def test_pending_and_failed_trials_say_nothing_about_the_objective_and_are_taken() -> None:
    history = [
        observed(0.1, State.MEASURED, 1.0),
        observed(0.2, State.PENDING),
        observed(0.3, State.FAILED, 0.0),
    ]
    evidence = evidence_of(SPACE, history, direction=Direction.MINIMIZE)
    assert evidence.losses.tolist() == [1.0]
    assert evidence.pending[:, 0].tolist() == [0.2]
    assert evidence.failed[:, 0].tolist() == [0.3]
    assert evidence.taken == {(rate, "adam") for rate in (0.1, 0.2, 0.3)}


def test_a_category_that_is_gone_is_left_out() -> None:
    history = [Observation({"rate": 0.5, "optimizer": "lamb"}, State.MEASURED, 1.0)]
    assert np.size(evidence_of(SPACE, history, direction=Direction.MINIMIZE).losses) == 0


def test_trials_of_parents_are_told_apart_and_are_not_taken() -> None:
    values: dict[str, Value] = {"rate": 0.5, "optimizer": "sgd"}
    history = [
        Observation(values, State.MEASURED, 1.0, source="first"),
        Observation(values, State.MEASURED, 2.0, source="second"),
        Observation(values, State.FAILED, source="second"),
        observed(0.1, State.MEASURED, 3.0),
    ]
    evidence = evidence_of(SPACE, history, direction=Direction.MINIMIZE)
    assert dict(zip(evidence.losses.tolist(), evidence.sources.tolist(), strict=True)) == {1.0: 1, 2.0: 2, 3.0: 0}
    assert len(evidence.failed) == 0
    assert evidence.failed_elsewhere[:, 0].tolist() == [0.5]
    assert len(evidence.alone().failed_elsewhere) == 0
    assert evidence.taken == {(0.1, "adam")}
