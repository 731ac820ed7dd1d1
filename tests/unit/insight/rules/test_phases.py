import pytest

from tests.unit.insight.rules.steps import Run, losses
from trainyard.formats.tensors.contract import Mode, Step
from trainyard.insight.rules.contract import Need
from trainyard.insight.rules.phases import Mean, Phase, Phases, summarised
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
    falling = summarised([10.0 - step * 0.1 for step in range(100)])
    assert falling.noise == pytest.approx(0.07, abs=0.01)
    assert summarised([1.0, 3.0] * 50).noise == pytest.approx(1.4, abs=0.1)


def test_joined_means_are_those_over_all() -> None:
    joined = Mean(1.0, 0.1, 10).joined(Mean(4.0, 0.1, 20))
    assert joined.value == pytest.approx(3.0)
    assert joined.noise == pytest.approx(0.1)
    assert joined.count == 30
