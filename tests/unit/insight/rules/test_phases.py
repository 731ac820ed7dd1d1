import pytest

from tests.unit.insight.rules.steps import Run, losses
from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.contract import Need
from trainyard.insight.rules.phases import Phase, PhaseMean, Phases, summarise_losses
from trainyard.insight.rules.readings import Reader

LOSS = "CrossEntropyLoss_output_0"


def phases_of(steps: list[Step]) -> list[Phase]:
    phases = Phases(Reader(Need(collections=("losses",))))
    return [phase for step in steps for phase in phases.add(step)] + list(phases.close())


def told(phases: list[Phase]) -> list[tuple[Mode, int, float, int]]:
    return [(phase.mode, phase.step, phase.losses[LOSS].value, phase.losses[LOSS].count) for phase in phases]


def test_a_phase_is_the_steps_of_one_mode_on_end() -> None:
    run = Run()
    steps = losses([4.0, 2.0], run=run) + losses([1.0], mode=Mode.EVAL, run=run) + losses([0.5], run=run)
    assert told(phases_of(steps)) == [(Mode.TRAIN, 1, 3.0, 2), (Mode.EVAL, 2, 1.0, 1), (Mode.TRAIN, 3, 0.5, 1)]


def test_a_program_that_never_evaluates_has_phases_of_a_fixed_length() -> None:
    assert [count for _, _, _, count in told(phases_of(losses([1.0] * 1200)))] == [500, 500, 200]


def test_a_program_that_evaluates_has_phases_of_any_length() -> None:
    run = Run()
    steps = losses([1.0], run=run) + losses([1.0], mode=Mode.EVAL, run=run) + losses([1.0] * 1200, run=run)
    assert [count for _, _, _, count in told(phases_of(steps))] == [1, 1, 1200]


def test_steps_without_a_loss_and_losses_that_are_nan_belong_to_no_phase() -> None:
    run = Run()
    steps = [run.step({"scalar/x": 1.0}), *losses([float("nan"), 2.0], run=run)]
    assert told(phases_of(steps)) == [(Mode.TRAIN, 2, 2.0, 1)]


def test_losses_that_are_told_together_are_a_phase_of_each_data() -> None:
    step = Run().step({"train-rmse": 0.5, "validation-rmse": 0.75})
    assert [(phase.mode, phase.losses["rmse"].value) for phase in phases_of([step])] == [
        (Mode.TRAIN, 0.5),
        (Mode.EVAL, 0.75),
    ]


def test_each_worker_has_phases_of_its_own() -> None:
    steps = losses([1.0, 2.0], run=Run("worker_0")) + losses([5.0], run=Run("worker_1"))
    assert [(phase.worker, phase.losses[LOSS].count) for phase in phases_of(steps)] == [
        ("worker_0", 2),
        ("worker_1", 1),
    ]


def test_a_trend_is_not_taken_for_noise() -> None:
    falling = summarise_losses([10.0 - step * 0.1 for step in range(100)])
    assert falling.noise == pytest.approx(0.07, abs=0.01)
    assert summarise_losses([1.0, 3.0] * 50).noise == pytest.approx(1.4, abs=0.1)


def test_joined_means_are_those_over_all() -> None:
    joined = PhaseMean(1.0, 0.1, 10).combine(PhaseMean(4.0, 0.1, 20))
    assert joined.value == pytest.approx(3.0)
    assert joined.noise == pytest.approx(0.1)
    assert joined.count == 30


def test_the_more_losses_a_mean_is_of_the_less_it_may_be_off() -> None:
    assert PhaseMean(1.0, 0.6, 9).error == pytest.approx(0.2)
    assert PhaseMean(1.0, 0.6, 1).error == pytest.approx(0.6)


def test_the_noise_of_joined_means_is_weighed_by_their_counts() -> None:
    assert PhaseMean(1.0, 0.1, 10).combine(PhaseMean(1.0, 0.2, 20)).noise == pytest.approx(0.03**0.5)


def test_a_phase_that_was_closed_is_not_told_again() -> None:
    phases = Phases(Reader(Need(collections=("losses",))))
    assert [list(phases.add(step)) for step in losses([1.0, 2.0])] == [[], []]
    assert len(list(phases.close())) == 1
    assert list(phases.close()) == []


def test_predictions_are_evaluations_and_what_has_no_mode_is_learned_from() -> None:
    run = Run()
    steps = losses([1.0], mode=Mode.PREDICT, run=run) + losses([2.0], mode=Mode.GLOBAL, run=run)
    assert [phase.mode for phase in phases_of(steps)] == [Mode.EVAL, Mode.TRAIN]


def test_losses_that_are_told_together_are_told_at_each_step_with_names_in_any_case() -> None:
    step = Run("worker_7").step({"Training-error@0.7": 0.5, "eval-error@0.7": 0.25, "test-error@0.7": 0.75})
    [learned, evaluated] = Phases(Reader(Need(regexes=("error",)))).add(step)
    assert (learned.worker, learned.step, learned.losses) == ("worker_7", 0, {"error@0.7": PhaseMean(0.5, 0.0, 1)})
    assert evaluated.losses == {"error@0.7": PhaseMean(0.25, 0.0, 1)}  # the first of several


def test_one_loss_is_as_it_is_and_has_no_noise() -> None:
    assert summarise_losses([2.5]) == PhaseMean(2.5, 0.0, 1)
    assert summarise_losses([1.0, 2.0]) == PhaseMean(1.5, 0.5**0.5, 2)
