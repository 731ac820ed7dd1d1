import math
import re

import numpy as np
import pytest
from numpy.typing import NDArray

from trainyard.foundation.jobs.tuning import Direction, Objective
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.insight.tuning.curve_forecast import fit_curve_model
from trainyard.insight.tuning.curves import CurveRule

EPOCHS = 27
TIMES = np.arange(1.0, EPOCHS + 1)


def rule() -> CurveRule:
    return CurveRule(Objective("validation:error", Direction.MINIMIZE))


def exponential(
    final: float, *, pace: float = 4.0, noise: float = 0.0, seed: int = 0, times: NDArray[np.float64] = TIMES
) -> tuple[float, ...]:
    curve = final + (1 - final) * np.exp(-times / pace)
    return tuple(curve + np.random.default_rng(seed).normal(0, noise, len(times)))


def stepped(final: float) -> tuple[float, ...]:
    """A plateau until the learning rate falls."""
    return tuple(final + 0.3 * (TIMES < 15) + 0.5 * np.exp(-TIMES / 1.5))


def humped(final: float) -> tuple[float, ...]:
    """Worse before it gets better."""
    return tuple(final + 0.5 * (TIMES / 5) * np.exp(1 - TIMES / 5))


def finished(*curves: tuple[float, ...]) -> list[TrialCurve]:
    return [TrialCurve(number, curve, is_over=True) for number, curve in enumerate(curves, start=2)]


def ends_at(curve: tuple[float, ...], others: list[TrialCurve]) -> int | None:
    reports = range(1, EPOCHS)
    return next(
        (report for report in reports if rule().verdict(TrialCurve(1, curve[:report]), others) is not None), None
    )


FIVE = finished(*(exponential(final) for final in (0.2, 0.25, 0.3, 0.4, 0.5)))


def test_a_trial_that_leads_nowhere_ends_early_and_the_figures_say_why() -> None:
    curve = exponential(0.6)
    report = ends_at(curve, FIVE)
    assert report is not None
    assert report <= 9
    why = rule().verdict(TrialCurve(1, curve[:report]), FIVE)
    assert why is not None
    told = re.fullmatch(
        rf"validation:error was ([\d.]+) at report {report} of about 27, "
        r"which leads to ([\d.]+) give or take ([\d.]+); "
        r"the chance that it becomes better than ([\d.]+), the best so far, is ([\d.]+)%\.",
        why,
    )
    assert told is not None, why
    now, final, spread, best, chance = map(float, told.groups())
    assert now == pytest.approx(curve[report - 1], rel=1e-4)
    assert abs(final - curve[-1]) < 3 * spread
    assert best == pytest.approx(0.2009, abs=1e-3)
    assert chance < 3


@pytest.mark.parametrize("pace", [2.0, 4.0, 6.0])
def test_a_trial_that_becomes_the_best_continues_however_fast_it_is(pace: float) -> None:
    assert ends_at(exponential(0.1, pace=pace), FIVE) is None


@pytest.mark.parametrize("per_epoch", [4, 20])
def test_a_trial_that_becomes_the_best_continues_however_often_it_reports(per_epoch: int) -> None:
    times = np.arange(1, EPOCHS * per_epoch + 1) / per_epoch
    others = finished(*(exponential(final, times=times) for final in (0.2, 0.25, 0.3, 0.4, 0.5)))
    slow = exponential(0.1, pace=6.0, times=times)
    reports = [*range(3, 3 * per_epoch), *range(3 * per_epoch, len(slow), per_epoch // 2)]
    assert all(rule().verdict(TrialCurve(1, slow[:report]), others) is None for report in reports)


@pytest.mark.parametrize("seed", range(5))
def test_noise_ends_no_trial_that_becomes_the_best(seed: int) -> None:
    others = finished(*(exponential(0.3 + n / 20, noise=0.05, seed=n + 50) for n in range(8)))
    assert ends_at(exponential(0.15, noise=0.05, seed=seed), others) is None


def test_a_plateau_is_waited_through_where_the_finished_trials_dropped_after_it() -> None:
    others = finished(*(stepped(final) for final in (0.2, 0.25, 0.3, 0.4)))
    assert stepped(0.1)[10] > others[0].curve[-1]
    assert ends_at(stepped(0.1), others) is None
    hopeless = ends_at(stepped(0.6), others)
    assert hopeless is not None
    assert hopeless < 15


def test_a_trial_that_gets_worse_first_continues_if_the_finished_ones_did_too() -> None:
    others = finished(*(humped(final) for final in (0.2, 0.25, 0.3, 0.4)))
    assert ends_at(humped(0.1), others) is None
    assert ends_at(humped(0.7), others) is not None


@pytest.mark.parametrize(
    "other",
    [
        TrialCurve(9, (0.1,) * 26, is_over=True, is_cut_short=True),
        TrialCurve(9, (0.1,) * 26),
        TrialCurve(9, (0.1,) * 20, is_over=True),
        TrialCurve(9, (*[0.1] * 26, math.nan), is_over=True),
    ],
    ids=["was cut short", "still runs", "was no longer", "diverged"],
)
def test_no_trial_ends_before_three_longer_ones_have_finished(other: TrialCurve) -> None:
    assert rule().verdict(TrialCurve(1, (0.9,) * 20), [*FIVE[:2], other]) is None
    assert rule().verdict(TrialCurve(1, (0.9,) * 20), [*FIVE[:3], other]) is not None


def test_nothing_is_learned_from_trials_that_were_cut_short() -> None:
    curve = exponential(0.6)[:9]
    cut = [TrialCurve(number, (0.9,) * 26, is_over=True, is_cut_short=True) for number in range(20, 40)]
    assert rule().verdict(TrialCurve(1, curve), [*FIVE, *cut]) == rule().verdict(TrialCurve(1, curve), FIVE) is not None


def test_no_trial_ends_before_the_third_report() -> None:
    assert rule().verdict(TrialCurve(1, (99.0, 99.0)), FIVE) is None


def test_a_trial_longer_than_all_that_finished_is_left_to_its_end() -> None:
    assert rule().verdict(TrialCurve(1, (0.9,) * EPOCHS), FIVE) is None


def test_trials_that_ended_by_themselves_sooner_are_learned_from_as_well() -> None:
    sooner = [TrialCurve(each.number, each.curve[:20], is_over=True) for each in FIVE[1:]]
    why = rule().verdict(TrialCurve(1, exponential(0.6)[:12]), [FIVE[0], *sooner])
    assert why is not None
    assert "of about 27" in why


def test_the_best_may_have_been_ended_early_itself() -> None:
    early = TrialCurve(9, (0.5, 0.05), is_over=True, is_cut_short=True)
    curve = exponential(0.15)[:20]
    assert rule().verdict(TrialCurve(1, curve), FIVE) is None
    assert "than 0.05, the best so far" in (rule().verdict(TrialCurve(1, curve), [*FIVE, early]) or "")


def test_the_best_is_of_trials_that_are_over_and_told_something() -> None:
    curve = exponential(0.6)[:9]
    others = [
        TrialCurve(7, (0.5, 0.01)),
        TrialCurve(8, (), is_over=True),
        TrialCurve(9, (0.5, -math.inf), is_over=True),
        *FIVE,
    ]
    assert rule().verdict(TrialCurve(1, curve), others) == rule().verdict(TrialCurve(1, curve), FIVE) is not None


def test_an_ended_trial_gets_no_verdict() -> None:
    assert rule().verdict(TrialCurve(1, exponential(0.6)[:9], is_over=True), FIVE) is None


def test_when_more_is_better_the_same_trials_end_for_the_same_reason() -> None:
    more = CurveRule(Objective("accuracy", Direction.MAXIMIZE))
    others = finished(*(tuple(1 - value for value in each.curve) for each in FIVE))
    for final in (0.1, 0.3, 0.6):
        curve = exponential(final)
        for report in (3, 6, 12, 20):
            turned = more.verdict(TrialCurve(1, tuple(1 - value for value in curve[:report])), others)
            assert (turned is None) == (rule().verdict(TrialCurve(1, curve[:report]), FIVE) is None)
    told = more.verdict(TrialCurve(1, tuple(1 - value for value in exponential(0.6)[:12])), others) or ""
    found = re.search(r"which leads to ([\d.]+) .* better than ([\d.]+), the best so far", told)
    assert found is not None, told
    assert [float(each) for each in found.groups()] == pytest.approx([0.4, 0.8], abs=0.05)


@pytest.mark.parametrize(("length", "first"), [(20, 5), (27, 5), (50, 10)])
def test_less_chance_is_enough_in_the_first_five_reports_and_the_first_fifth(length: int, first: int) -> None:
    times = np.arange(1, length + 1) * EPOCHS / length
    others = finished(*(exponential(final, times=times) for final in (0.2, 0.25, 0.3, 0.4, 0.5)))
    model = fit_curve_model(tuple(other.curve for other in others))
    between = dict.fromkeys(range(first - 1, first + 3), 0)
    for final in np.linspace(0.2, 0.6, 60):
        for report in between:
            curve = exponential(final, times=times)[:report]
            chance = model.forecast(curve).probability_below(others[0].curve[-1])
            is_enough = chance >= (0.03 if report <= first else 0.08)
            assert (rule().verdict(TrialCurve(1, curve), others) is None) == is_enough
            between[report] += 0.03 <= chance < 0.08
    assert min(between.values()) > 0


def test_only_the_latest_trials_are_learned_from() -> None:
    latest = [TrialCurve(100 + n, exponential(0.3 + n / 100), is_over=True) for n in range(25)]
    older = [TrialCurve(2 + n, stepped(0.5), is_over=True) for n in range(9)]
    curve = exponential(0.6)[:9]
    why = rule().verdict(TrialCurve(1, curve), latest)
    assert why is not None
    assert (
        rule().verdict(TrialCurve(1, curve), [*latest, *older])
        == rule().verdict(TrialCurve(1, curve), [*older, *latest])
        == why
    )
    assert rule().verdict(TrialCurve(1, curve), [*latest[1:], *older]) != rule().verdict(
        TrialCurve(1, curve), latest[1:]
    )


def test_a_trial_whose_last_report_is_not_finite_ends() -> None:
    why = rule().verdict(TrialCurve(1, (0.5, 0.4, math.nan)), FIVE)
    assert why == "validation:error was nan at report 3, while 5 other trials finished."


def test_one_report_that_is_not_finite_is_ignored() -> None:
    curve = exponential(0.1)
    assert rule().verdict(TrialCurve(1, (*curve[:4], math.inf, *curve[5:15])), FIVE) is None


def test_curves_of_thousands_of_reports_get_the_same_verdicts_as_short_ones() -> None:
    long = [TrialCurve(each.number, tuple(np.repeat(each.curve, 200)), is_over=True) for each in FIVE]
    assert rule().verdict(TrialCurve(1, tuple(np.repeat(exponential(0.6)[:12], 200))), long) is not None
    assert rule().verdict(TrialCurve(1, tuple(np.repeat(exponential(0.1)[:12], 200))), long) is None
