import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode, Probe, Step
from trainyard.formats.tensors.statistics.probes import COSINE
from trainyard.insight.rules.contract import Severity

WEIGHT, BIAS = "gradient/Net_fc.weight", "gradient/Net_fc.bias"


def run_with(cosines: list[float], mode: Mode = Mode.TRAIN) -> list[Step]:
    run, tensors = Run(), {WEIGHT: np.ones((4, 4)), BIAS: np.ones(4)}
    return [
        run.step(tensors, mode=mode, measures={(WEIGHT, Probe(COSINE)): each, (BIAS, Probe(COSINE)): 0.9})
        for each in cosines
    ]


def test_gradients_that_never_agreed_are_found_after_so_many_steps() -> None:
    findings = found_by("GradientNoise", run_with([np.nan, *[0.04] * 10]), window="5", steps="10")
    (finding,) = findings
    assert (finding.step, finding.severity, finding.threshold) == (10, Severity.NOTICE, 0.1)
    assert finding.value == pytest.approx(0.04)
    assert "About 24 times as large a batch" in finding.message


def test_gradients_that_agreed_at_first_are_not_found_when_the_training_is_done() -> None:
    assert found_by("GradientNoise", run_with([0.5] * 5 + [0.0] * 100), window="5", steps="10") == []


def test_one_lucky_step_is_not_enough() -> None:
    steps = run_with([0.0] * 5 + [0.4] + [0.0] * 5)
    assert found_by("GradientNoise", steps, window="5", steps="10")[0].value == pytest.approx(0.08)


def test_a_run_is_not_judged_before_its_time_nor_while_it_evaluates() -> None:
    assert found_by("GradientNoise", run_with([0.0] * 99)) == []
    assert found_by("GradientNoise", run_with([0.0] * 200, mode=Mode.EVAL)) == []
    assert found_by("GradientNoise", run_with([np.nan] * 200)) == []


def test_gradients_of_steps_that_lie_far_apart_are_not_compared() -> None:
    steps = [step for step in run_with([0.0] * 4000) if step.mode_step % 40 == 0]
    assert found_by("GradientNoise", steps, window="5", steps="10") == []
    near = [step for step in run_with([0.0] * 400) if step.mode_step % 10 == 0]
    assert len(found_by("GradientNoise", near, window="5", steps="10")) > 0


@pytest.mark.parametrize(("apart", "is_found"), [(20, True), (21, False)])
def test_twenty_steps_are_near_enough_to_be_compared(apart: int, is_found: bool) -> None:
    steps = [step for step in run_with([0.0] * 20 * apart) if step.mode_step % apart == 0]
    assert bool(found_by("GradientNoise", steps, window="5", steps="10")) is is_found
