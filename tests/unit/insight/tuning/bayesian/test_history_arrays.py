import math

import numpy as np
import pytest

from trainyard.foundation.jobs.tuning import Direction, HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.bayesian.history_arrays import history_arrays
from trainyard.insight.tuning.contract import Observation, State, Value
from trainyard.insight.tuning.space import Space

SPACE = Space(
    [
        HyperparameterRange("rate", RangeKind.CONTINUOUS, 0.0, 1.0, Scaling.LINEAR),
        HyperparameterRange("optimizer", RangeKind.CATEGORICAL, values=("sgd", "adam")),
    ]
)


def observed(rate: float, state: State, value: float | None = None, curve: tuple[float, ...] = ()) -> Observation:
    return Observation({"rate": rate, "optimizer": "adam"}, state, value, curve)


def losses(*history: Observation, direction: Direction = Direction.MINIMIZE) -> dict[float, float]:
    """What each trial that says something about the objective counts as, by its rate."""
    arrays = history_arrays(SPACE, history, direction=direction)
    return dict(zip(arrays.rows[:, 0].tolist(), arrays.losses.tolist(), strict=True))


@pytest.mark.parametrize(("direction", "worst"), [(Direction.MINIMIZE, 3.0), (Direction.MAXIMIZE, -1.0)])
def test_a_diverged_trial_counts_as_the_worst_measured(direction: Direction, worst: float) -> None:
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


def test_only_trials_that_were_cut_short_get_extra_noise() -> None:
    history = [observed(0.1, State.MEASURED, 1.0), observed(0.9, State.CUT_SHORT, 5.0)]
    extra_noise = history_arrays(SPACE, history, direction=Direction.MINIMIZE).extra_noise
    assert extra_noise[0] == 0.0
    assert extra_noise[1] > 0.0


def test_pending_and_failed_trials_have_no_loss_but_count_as_tried() -> None:
    history = [
        observed(0.1, State.MEASURED, 1.0),
        observed(0.2, State.PENDING),
        observed(0.3, State.FAILED, 0.0),
    ]
    arrays = history_arrays(SPACE, history, direction=Direction.MINIMIZE)
    assert arrays.losses.tolist() == [1.0]
    assert arrays.pending[:, 0].tolist() == [0.2]
    assert arrays.failed[:, 0].tolist() == [0.3]
    assert arrays.tried == {(rate, "adam") for rate in (0.1, 0.2, 0.3)}


def test_a_category_that_is_gone_is_left_out() -> None:
    history = [Observation({"rate": 0.5, "optimizer": "lamb"}, State.MEASURED, 1.0)]
    assert np.size(history_arrays(SPACE, history, direction=Direction.MINIMIZE).losses) == 0


def test_trials_of_parents_have_their_own_source_and_do_not_count_as_tried() -> None:
    values: dict[str, Value] = {"rate": 0.5, "optimizer": "sgd"}
    history = [
        Observation(values, State.MEASURED, 1.0, source="first"),
        Observation(values, State.MEASURED, 2.0, source="second"),
        Observation(values, State.FAILED, source="second"),
        observed(0.1, State.MEASURED, 3.0),
    ]
    arrays = history_arrays(SPACE, history, direction=Direction.MINIMIZE)
    assert dict(zip(arrays.losses.tolist(), arrays.sources.tolist(), strict=True)) == {1.0: 1, 2.0: 2, 3.0: 0}
    assert len(arrays.failed) == 0
    assert arrays.failed_in_sources[:, 0].tolist() == [0.5]
    assert len(arrays.target_only().failed_in_sources) == 0
    assert arrays.tried == {(0.1, "adam")}
