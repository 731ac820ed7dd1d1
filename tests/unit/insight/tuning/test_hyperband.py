import math
from collections import Counter

import pytest

from trainyard.foundation.jobs.tuning import Direction, HyperbandResources, Objective
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.insight.tuning.hyperband import Hyperband, resources_of


def hyperband(least: int = 1, most: int = 27, direction: Direction = Direction.MINIMIZE) -> Hyperband:
    return Hyperband(Objective("loss", direction), HyperbandResources(least, most))


def numbers(pruner: Hyperband, bracket: int, count: int) -> list[int]:
    """Return the first trials of a bracket."""
    return [number for number in range(1, 1000) if pruner.bracket(number) == bracket][:count]


def test_brackets_share_the_trials_as_hyperband_does_from_the_first_trials_on() -> None:
    pruner = hyperband()
    shares = [count / 1000 for _, count in sorted(Counter(map(pruner.bracket, range(1, 1001))).items())]
    assert shares == pytest.approx([0.551, 0.245, 0.122, 0.082], abs=0.005)
    assert Counter(map(pruner.bracket, range(1, 21))) == {0: 11, 1: 5, 2: 3, 3: 1}


def test_each_bracket_begins_one_rung_higher_and_the_last_has_none() -> None:
    pruner = hyperband(least=2, most=60)
    rungs = [pruner.rungs(numbers(pruner, bracket, 1)[0]) for bracket in range(5)]
    assert rungs == [(2, 6, 18, 54), (6, 18, 54), (18, 54), (54,), ()]


def test_only_the_best_third_at_a_rung_continues() -> None:
    pruner = hyperband()
    mine, *rest = numbers(pruner, 0, 6)
    at_rung = [TrialCurve(number, (float(place),)) for place, number in enumerate(rest)]  # 0, 1, 2, 3, 4
    assert pruner.verdict(TrialCurve(mine, (0.5,)), at_rung) is None
    why = pruner.verdict(TrialCurve(mine, (1.5,)), at_rung)
    assert why == "loss was 1.5 at report 1, where 2 of the 6 trials that came as far did better; the best 2 go on."


@pytest.mark.parametrize(("count", "going_on"), [(3, 1), (4, 2), (5, 2), (6, 2), (7, 3), (8, 3), (9, 3), (10, 4)])
def test_a_fractional_third_is_rounded_up(count: int, going_on: int) -> None:
    pruner = hyperband()
    runs = [TrialCurve(number, (float(place),)) for place, number in enumerate(numbers(pruner, 0, count))]
    verdicts = [pruner.verdict(run, [other for other in runs if other is not run]) for run in runs]
    assert [verdict is None for verdict in verdicts] == [True] * going_on + [False] * (count - going_on)


def test_when_more_is_better_the_highest_continue() -> None:
    pruner = hyperband(direction=Direction.MAXIMIZE)
    mine, *rest = numbers(pruner, 0, 6)
    at_rung = [TrialCurve(number, (float(place),)) for place, number in enumerate(rest)]
    assert pruner.verdict(TrialCurve(mine, (3.5,)), at_rung) is None
    assert pruner.verdict(TrialCurve(mine, (2.5,)), at_rung) is not None


def test_equally_good_trials_all_continue() -> None:
    pruner = hyperband()
    mine, *rest = numbers(pruner, 0, 9)
    assert pruner.verdict(TrialCurve(mine, (0.5,)), [TrialCurve(number, (0.5,)) for number in rest]) is None


def test_a_trial_that_is_over_is_not_ended_once_more() -> None:
    assert hyperband().verdict(TrialCurve(1, (0.0,) * 27, is_over=True), []) is None


def test_while_few_have_reached_a_rung_all_continue() -> None:
    pruner = hyperband()
    mine, other = numbers(pruner, 0, 2)
    assert pruner.verdict(TrialCurve(mine, (9.0,)), [TrialCurve(other, (0.0,))]) is None


def test_trials_of_other_brackets_are_no_rivals() -> None:
    pruner = hyperband()
    mine = numbers(pruner, 0, 1)[0]
    strangers = [TrialCurve(number, (0.0, 0.0, 0.0)) for number in numbers(pruner, 1, 9)]
    assert pruner.verdict(TrialCurve(mine, (9.0, 9.0, 9.0)), strangers) is None


def test_a_trial_is_compared_at_its_last_rung_also_with_later_results() -> None:
    pruner = hyperband()
    mine, *rest = numbers(pruner, 0, 4)
    run = TrialCurve(mine, (5.0, 5.0, 1.0, 0.0))  # past the rung at 3
    assert pruner.verdict(run, [TrialCurve(number, (0.0, 0.0)) for number in rest]) is None
    assert pruner.verdict(run, [TrialCurve(number, (0.0, 0.0, 0.5)) for number in rest]) is not None


def test_at_the_most_reports_every_trial_ends_also_an_only_one() -> None:
    assert hyperband().verdict(TrialCurve(1, (0.0,) * 26), []) is None
    assert (
        hyperband().verdict(TrialCurve(1, (0.0,) * 27), [])
        == "It has made 27 reports of loss, all that a trial is given."
    )


@pytest.mark.parametrize(("epochs", "is_left"), [(27, True), (9, True), (28, False), (None, False)])
def test_a_program_that_ends_by_itself_is_left_to_save_its_model(epochs: int | None, is_left: bool) -> None:
    pruner = Hyperband(Objective("loss", Direction.MINIMIZE), HyperbandResources(1, 27), epochs=epochs)
    assert (pruner.verdict(TrialCurve(1, (0.0,) * 27), []) is None) is is_left
    assert pruner.verdict(TrialCurve(1, (0.0,) * 28), []) is not None  # it reports more than once an epoch


def test_before_the_least_reports_nothing_ends() -> None:
    pruner = hyperband(least=5, most=50)
    mine, *rest = numbers(pruner, 0, 9)
    assert pruner.verdict(TrialCurve(mine, (9.0,) * 4), [TrialCurve(number, (0.0,) * 9) for number in rest]) is None


def test_a_value_that_is_not_finite_is_the_worst_at_a_rung() -> None:
    pruner = hyperband()
    mine, *rest = numbers(pruner, 0, 3)
    assert pruner.verdict(TrialCurve(mine, (math.nan,)), [TrialCurve(number, (1e9,)) for number in rest]) is not None


@pytest.mark.parametrize("name", ["epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs"])
def test_the_most_is_taken_from_a_static_number_of_epochs(name: str) -> None:
    assert resources_of({name: "81", "rate": "0.1"}) == HyperbandResources(1, 81)


@pytest.mark.parametrize("text", ['"81"', " 81 ", "81"])
def test_a_number_of_epochs_may_be_written_as_the_sdk_writes_it(text: str) -> None:
    assert resources_of({"epochs": text}) == HyperbandResources(1, 81)


def test_one_epoch_is_a_number_of_epochs() -> None:
    assert resources_of({"epochs": "1"}) == HyperbandResources(1, 1)
    assert hyperband(least=1, most=1).verdict(TrialCurve(1, (0.0,)), []) is not None


def test_what_is_said_goes_before_what_is_inferred() -> None:
    assert resources_of({"epochs": "81"}, least=3, most=27) == HyperbandResources(3, 27)


@pytest.mark.parametrize("static", [{}, {"epochs": "many"}, {"epochs": "0"}, {"epochs": "2.5"}])
def test_without_a_number_of_epochs_nothing_is_inferred(static: dict[str, str]) -> None:
    assert resources_of(static, least=2) is None


def test_a_least_above_the_most_is_kept_within_it() -> None:
    assert resources_of({"epochs": "4"}, least=9) == HyperbandResources(4, 4)
