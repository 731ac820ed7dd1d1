import math
from dataclasses import replace

import pytest

from trainyard.foundation.jobs.tuning import (
    CompletionCriteria,
    Direction,
    Objective,
    StopCause,
    StrategyKind,
    TrialStatus,
    TuningDefinition,
    TuningPlan,
    TuningTrial,
)
from trainyard.insight.tuning.completion import (
    Progress,
    after_trial,
    expected_gain,
    has_converged,
    measured_value,
    progress_of,
    why_complete,
)

NO_CRITERIA = CompletionCriteria()


def plan(direction: Direction = Direction.MINIMIZE, completion: CompletionCriteria = NO_CRITERIA) -> TuningPlan:
    return TuningPlan(
        strategy=StrategyKind.BAYESIAN,
        definitions=(TuningDefinition("", Objective("loss", direction), ()),),
        max_parallel=2,
        completion=completion,
    )


def ended(*values: float | None, status: TrialStatus = TrialStatus.COMPLETED) -> list[TuningTrial]:
    return [
        TuningTrial(number, f"job-{number}", "", {}, status, objective=value)
        for number, value in enumerate(values, start=1)
    ]


@pytest.mark.parametrize(("direction", "best"), [(Direction.MINIMIZE, 2), (Direction.MAXIMIZE, 1)])
def test_the_best_trial_is_known_in_both_directions(direction: Direction, best: int) -> None:
    progress = progress_of(plan(direction), ended(0.9, 0.1, 0.5))
    assert (progress.best, progress.measured) == (best, 3)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_trial_without_a_finite_objective_is_not_measured(value: float | None) -> None:
    progress = progress_of(plan(), ended(0.5, value))
    assert (progress.best, progress.measured, progress.since_best) == (1, 1, 0)


def test_trials_that_failed_or_that_a_rule_ended_are_never_the_best() -> None:
    (failed,) = ended(0.1, status=TrialStatus.FAILED)
    (stopped,) = ended(0.1, status=TrialStatus.STOPPED)
    assert progress_of(plan(), [failed, replace(stopped, cause=StopCause.RULE)]) == Progress()
    assert progress_of(plan(), [replace(stopped, cause=StopCause.EARLY)]).best == 1


def test_a_trial_that_is_better_by_less_than_one_percent_is_the_best_but_no_improvement() -> None:
    progress = progress_of(plan(), ended(1.0, 0.995))
    assert (progress.best, progress.best_value, progress.since_best) == (2, 0.995, 1)


@pytest.mark.parametrize(
    ("direction", "better", "worse"), [(Direction.MINIMIZE, 99.0, 101.0), (Direction.MAXIMIZE, 101.0, 99.0)]
)
def test_one_percent_is_an_improvement_to_the_last_digit(direction: Direction, better: float, worse: float) -> None:
    before = progress_of(plan(direction), ended(100.0))
    assert before.since_best == 0
    for value, is_improved in ((better, True), (better + (worse - better) * 1e-9, False), (worse, False)):
        after = after_trial(before, replace(ended(value)[0], number=2), plan=plan(direction))
        assert (after.improved_to == value, after.since_best == 0) == (is_improved, is_improved)
        assert after.best_value == (value if value != worse else 100.0)


def test_trials_that_still_run_or_told_nothing_are_not_measured() -> None:
    (running,) = ended(0.1, status=TrialStatus.IN_PROGRESS)
    (silent,) = ended(None)
    assert measured_value(running) is measured_value(silent) is None
    assert measured_value(ended(0.1)[0]) == 0.1


def test_the_direction_is_that_of_the_trials_own_definition() -> None:
    two = replace(
        plan(),
        definitions=(
            TuningDefinition("first", Objective("loss", Direction.MINIMIZE), ()),
            TuningDefinition("second", Objective("accuracy", Direction.MAXIMIZE), ()),
        ),
    )
    trials = [replace(trial, definition="second") for trial in ended(0.5, 0.9)]
    assert progress_of(two, trials).best == 2


def test_many_small_steps_make_one_improvement() -> None:
    progress = progress_of(plan(), ended(1.0, 0.996, 0.992, 0.988))
    assert (progress.best, progress.since_best) == (4, 0)


def test_any_step_from_nought_is_an_improvement() -> None:
    assert progress_of(plan(), ended(0.0, -1e-9)).since_best == 0
    assert progress_of(plan(), ended(0.0, 0.0)).since_best == 1


def test_trials_that_do_not_improve_are_counted_until_their_limit_ends_the_study() -> None:
    limited = plan(completion=CompletionCriteria(most_without_improvement=3))
    progress = progress_of(limited, ended(0.5, 0.6, 0.7))
    assert why_complete(limited, progress) is None
    fourth = after_trial(progress, replace(ended(0.5)[0], number=4), plan=limited)
    assert why_complete(limited, fourth) == (
        "The best objective, 0.5 of trial 1, has not improved by 1% for 3 trials; the limit is 3."
    )


@pytest.mark.parametrize(
    ("direction", "value", "is_over"),
    [
        (Direction.MINIMIZE, 0.2, True),
        (Direction.MINIMIZE, 0.19, True),
        (Direction.MINIMIZE, 0.21, False),
        (Direction.MAXIMIZE, 0.2, True),
        (Direction.MAXIMIZE, 0.19, False),
    ],
)
def test_a_study_ends_when_its_target_is_reached(direction: Direction, value: float, is_over: bool) -> None:
    aimed = plan(direction, CompletionCriteria(target=0.2))
    assert (why_complete(aimed, progress_of(aimed, ended(value))) is not None) is is_over


def test_a_target_of_nought_is_a_target() -> None:
    aimed = plan(completion=CompletionCriteria(target=0.0))
    assert why_complete(aimed, progress_of(aimed, ended(0.0))) == "Trial 1 reached 0; the target was 0."


def test_without_criteria_a_study_continues() -> None:
    assert why_complete(plan(), progress_of(plan(), ended(*[0.5] * 100))) is None


def test_a_search_that_closes_in_on_its_best_converges() -> None:
    closing = [0.5 + 2.0**-number for number in range(40)]
    progress = progress_of(plan(), ended(*closing))
    assert has_converged(progress)
    converging = plan(completion=CompletionCriteria(on_convergence=True))
    why = why_complete(converging, progress)
    assert why is not None
    assert why.startswith("The search has converged: 40 further trials are expected to improve the best objective")
    assert not has_converged(progress_of(plan(), ended(*closing[:19])))


def test_a_search_whose_best_is_nearly_nought_converges_though_it_still_halves() -> None:
    progress = progress_of(plan(), ended(*(2.0**-number for number in range(60))))
    assert progress.since_best == 0
    assert has_converged(progress)


@pytest.mark.parametrize("direction", list(Direction))
def test_a_search_whose_values_are_still_spread_has_not_converged(direction: Direction) -> None:
    spread = [(number * 0.618034) % 1.0 for number in range(1, 101)]
    assert not has_converged(progress_of(plan(direction), ended(*spread)))


def test_a_search_that_just_improved_has_not_converged_until_ten_trials_added_nothing() -> None:
    """Its best values are so close to each other that nothing else keeps it from having converged."""
    improved = [*[10.0] * 10, *[0.1] * 30, 0.0]
    converged = [has_converged(progress_of(plan(), ended(*improved, *[0.1] * more))) for more in range(12)]
    assert converged == [False] * 10 + [True] * 2


def test_what_is_kept_of_many_trials_has_a_fixed_size() -> None:
    progress = progress_of(plan(), ended(*(1 / number for number in range(1, 2000))))
    assert len(progress.first) == len(progress.tail) == 10
    assert progress.tail[0] == progress.best_value == 1 / 1999


def test_what_as_many_trials_again_would_add_is_the_mean_of_the_tail_times_the_logarithm_of_two() -> None:
    progress = progress_of(plan(), ended(*(float(value) for value in range(10, 0, -1))))
    assert expected_gain(progress) == pytest.approx(5 * math.log(2))
    assert expected_gain(progress_of(plan(), ended(*[0.5] * 9))) == math.inf


def test_twenty_equal_trials_have_converged_and_nineteen_have_not() -> None:
    assert has_converged(progress_of(plan(), ended(*[0.5] * 20)))
    assert not has_converged(progress_of(plan(), ended(*[0.5] * 19)))


def test_the_first_and_the_best_values_are_kept_in_their_orders() -> None:
    progress = progress_of(plan(Direction.MAXIMIZE), ended(*map(float, (3, 1, 2, *range(4, 15)))))
    assert progress.first == (3, 1, 2, 4, 5, 6, 7, 8, 9, 10)
    assert progress.tail == (14, 13, 12, 11, 10, 9, 8, 7, 6, 5)
