import math

import pytest

from trainyard.foundation.jobs.tuning import Direction, Objective
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.insight.tuning.median import MedianRule

NAN = math.nan


def rule(direction: Direction = Direction.MINIMIZE) -> MedianRule:
    return MedianRule(Objective("validation:error", direction))


def others(*curves: tuple[float, ...]) -> list[TrialCurve]:
    return [TrialCurve(number, curve, is_over=True) for number, curve in enumerate(curves, start=2)]


FIVE = others((0.5, 0.4), (0.6, 0.4), (0.7, 0.4), (0.8, 0.4), (0.9, 0.4))  # averages 0.45 to 0.65, in the middle 0.55


def test_a_value_worse_than_the_median_of_the_running_averages_ends_a_trial_and_says_so() -> None:
    why = rule().verdict(TrialCurve(1, (0.9, 0.56)), FIVE)
    assert why == (
        "validation:error was 0.56 at report 2, worse than 0.55, "
        "the median of the running averages of 5 other trials up to that report."
    )


def test_a_value_as_good_as_the_median_continues_though_its_own_average_is_worse() -> None:
    assert rule().verdict(TrialCurve(1, (9.0, 0.55)), FIVE) is None


def test_when_more_is_better_the_lower_value_is_the_worse_one() -> None:
    more = rule(Direction.MAXIMIZE)
    assert more.verdict(TrialCurve(1, (0.9, 0.56)), FIVE) is None
    assert more.verdict(TrialCurve(1, (0.1, 0.54)), FIVE) is not None


def test_no_trial_ends_before_the_second_report() -> None:
    assert rule().verdict(TrialCurve(1, (99.0,)), FIVE) is None


def test_no_trial_ends_before_five_others_have_come_as_far() -> None:
    short = [*FIVE[:4], TrialCurve(9, (0.1,), is_over=True, is_cut_short=True)]
    assert rule().verdict(TrialCurve(1, (9.0, 9.0)), short) is None


def test_only_what_others_reported_up_to_the_same_report_counts() -> None:
    later = [TrialCurve(each.number, (*each.curve, -9.0, -9.0, -9.0)) for each in FIVE]
    assert rule().verdict(TrialCurve(1, (9.0, 0.55)), later) is None
    assert rule().verdict(TrialCurve(1, (9.0, 0.55, 0.55)), later) is not None


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("direction", list(Direction))
def test_a_value_that_is_not_finite_is_worse_than_any_other(value: float, direction: Direction) -> None:
    assert rule(direction).verdict(TrialCurve(1, (0.5, value)), FIVE) is not None


def test_trials_that_diverged_make_the_median_no_better() -> None:
    diverged = others((0.5, NAN), (0.6, math.inf), (0.7, -math.inf), (0.2, 0.2), (0.3, 0.3))
    assert rule().verdict(TrialCurve(1, (1.0, 1e9)), diverged) is None  # the one in the middle diverged itself
    assert rule().verdict(TrialCurve(1, (1.0, 1e9)), [*diverged, *others((0.2, 0.2), (0.2, 0.2))]) is not None


def test_an_ended_trial_gets_no_verdict() -> None:
    assert rule().verdict(TrialCurve(1, (9.0, 9.0), is_over=True), FIVE) is None
