from datetime import UTC, datetime, timedelta

import pytest

from trainyard.foundation.jobs.tuning import (
    Direction,
    HyperparameterRange,
    Objective,
    RangeKind,
    Scaling,
    StrategyKind,
    TuningDefinition,
    TuningPlan,
    TuningTrial,
)
from trainyard.server.control.tuning.suggestions import PreparedSuggestion, TrialPace, suggest_at_random

OBJECTIVE = Objective("loss", Direction.MINIMIZE)


def plan(*ranges: HyperparameterRange) -> TuningPlan:
    return TuningPlan(
        StrategyKind.BAYESIAN, (TuningDefinition("", OBJECTIVE, ranges),), max_parallel=1, max_trials=9, seed=3
    )


@pytest.mark.parametrize("scaling", list(Scaling))
@pytest.mark.parametrize(("low", "high"), [(0.001, 0.9), (0.5, 0.5), (0.0, 0.0)])
def test_numbers_are_within_their_range_however_they_are_spread(scaling: Scaling, low: float, high: float) -> None:
    searched = plan(HyperparameterRange("x", RangeKind.CONTINUOUS, low, high, scaling))
    for number in range(1, 50):
        assert low <= float(suggest_at_random(searched, number).values["x"]) <= high


def test_integers_are_whole_and_categories_are_as_given() -> None:
    searched = plan(
        HyperparameterRange("layers", RangeKind.INTEGER, 1, 4),
        HyperparameterRange("kind", RangeKind.CATEGORICAL, values=('"a"', '"b"')),
    )
    drawn = [suggest_at_random(searched, number).values for number in range(1, 100)]
    assert {values["layers"] for values in drawn} == {"1", "2", "3", "4"}
    assert {values["kind"] for values in drawn} == {'"a"', '"b"'}


def test_the_same_trial_is_drawn_alike_each_time() -> None:
    searched = plan(HyperparameterRange("x", RangeKind.CONTINUOUS, 0, 1))
    assert suggest_at_random(searched, 4) == suggest_at_random(searched, 4)
    assert suggest_at_random(searched, 4) != suggest_at_random(searched, 5)


NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def pace(*, trial_s: float, answer_s: float) -> TrialPace:
    trial = TuningTrial(1, "job", "", {}, created_at=NOON, ended_at=NOON + timedelta(seconds=trial_s))
    made = TrialPace.of([trial])
    made.answer_s.append(answer_s)
    return made


def test_quick_answers_are_asked_for_when_the_last_result_is_there() -> None:
    quick = pace(trial_s=10, answer_s=0.5)
    assert not quick.asks_ahead
    assert not quick.accepts(PreparedSuggestion(5, 3, None), ended=4)
    assert quick.accepts(PreparedSuggestion(5, 4, None), ended=4)


def test_slow_answers_are_prepared_and_used_though_a_trial_has_ended_since() -> None:
    slow = pace(trial_s=10, answer_s=0.6)
    assert slow.asks_ahead
    assert slow.accepts(PreparedSuggestion(5, 3, None), ended=4)


def test_before_anything_is_known_the_next_trial_is_prepared() -> None:
    assert TrialPace().asks_ahead


def test_only_the_latest_trials_and_answers_tell() -> None:
    made = pace(trial_s=1000, answer_s=0.1)
    for _ in range(20):
        made.add(TuningTrial(1, "job", "", {}, created_at=NOON, ended_at=NOON + timedelta(seconds=1)))
    assert made.asks_ahead
