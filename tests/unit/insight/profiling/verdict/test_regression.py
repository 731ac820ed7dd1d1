"""Changes since earlier runs: those that are real are named with their phase, and noise says nothing."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.faulty_profiles import cpu_job, with_facts
from tests.profiles import START_US
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.contract import EarlierRun, Regression
from trainyard.insight.profiling.verdict.judge import judge_profile, summarize_run

P = StepPhase
DAY_US = 86_400_000_000


def run(number: int, step_s: float, *, wait_s: float = 0.01, **setup: str) -> EarlierRun:
    phases = {P.DATA_WAIT: wait_s, P.FORWARD: (step_s - wait_s) / 3, P.BACKWARD: (step_s - wait_s) * 2 / 3}
    return EarlierRun(f"mnist-{number}", START_US + number * DAY_US, step_s, phases, setup)


def runs(*steps_s: float) -> list[EarlierRun]:
    return [run(number, step_s) for number, step_s in enumerate(steps_s)]


def regression(profile: JobProfile, earlier: Sequence[EarlierRun]) -> Regression | None:
    return judge_profile(profile, earlier=earlier).regression


def job(step_s: float, wait: float = 0.05) -> JobProfile:
    return cpu_job(P.DATA_WAIT, wait, step_s=step_s)


def test_a_slower_step_is_named_with_the_phase_and_the_run_before() -> None:
    found = regression(job(0.24, wait=0.2), runs(0.2, 0.201, 0.199))
    assert found is not None
    assert found.ratio == pytest.approx(1.2, rel=0.02)
    assert (found.since_job, found.phase) == ("mnist-2", P.DATA_WAIT)
    assert found.message.startswith(
        ("20 % slower per step since mnist-2, because of waiting for data: ", "19 %", "21 %")
    )


def test_a_quicker_step_is_named_too() -> None:
    found = regression(job(0.15), runs(0.2, 0.201, 0.199))
    assert found is not None
    assert found.ratio < 1
    assert "quicker per step since mnist-2" in found.message


def test_a_change_that_came_before_is_followed_back() -> None:
    found = regression(job(0.3), runs(0.2, 0.201, 0.199, 0.3, 0.302, 0.298))
    assert found is not None
    assert found.since_job == "mnist-2"


def test_a_change_of_all_phases_names_none() -> None:
    found = regression(job(0.3, wait=0.05), [replace(each, phases_s=even(0.2)) for each in runs(0.2, 0.2, 0.2)])
    assert found is not None
    assert found.phase is None
    assert "because" not in found.message


def even(step_s: float) -> dict[StepPhase, float]:
    return {P.DATA_WAIT: step_s * 0.05, P.FORWARD: step_s * 0.32, P.BACKWARD: step_s * 0.5, P.OPTIMIZER: step_s * 0.13}


@pytest.mark.parametrize(
    "earlier",
    [
        runs(),
        runs(0.2),
        runs(0.185),
        runs(0.2, 0.195, 0.205, 0.198),
        runs(0.2, 0.26, 0.19, 0.24, 0.18, 0.25, 0.2),
        runs(0.15, 0.25, 0.16, 0.24, 0.15),
    ],
)
def test_what_runs_differ_by_anyway_is_noise(earlier: list[EarlierRun]) -> None:
    assert regression(job(0.205), earlier) is None


@pytest.mark.parametrize("seed", range(30))
def test_noise_of_many_runs_says_nothing(seed: int) -> None:
    random = np.random.default_rng(seed)
    steps = 0.2 * np.exp(random.normal(0, 0.04, 12))
    assert regression(job(float(0.2 * np.exp(random.normal(0, 0.04)))), runs(*steps)) is None


def test_one_slow_run_in_between_is_not_the_level() -> None:
    assert regression(job(0.2), runs(0.2, 0.201, 0.35, 0.2)) is None


def test_runs_on_another_setup_are_not_compared() -> None:
    other = [replace(each, setup={"instance_type": "ml.p5.48xlarge"}) for each in runs(0.1, 0.1, 0.1)]
    assert regression(job(0.2), other) is None
    same = [replace(each, setup={"instance_type": "ml.m5.large", "script": "train.py"}) for each in runs(0.1, 0.1, 0.1)]
    assert regression(job(0.2), same) is not None


def test_a_run_is_not_compared_with_itself() -> None:
    profile = job(0.3)
    assert regression(profile, [replace(each, job=profile.job) for each in runs(0.2)]) is None


def test_a_summary_has_the_steps_and_what_makes_runs_comparable() -> None:
    found = summarize_run(with_facts(job(0.2), samples_per_step=63.9))
    assert found is not None
    assert found.step_s == pytest.approx(0.2, rel=0.02)
    assert sum(found.phases_s.values()) == pytest.approx(found.step_s)
    assert found.setup == {
        "instance_type": "ml.m5.large",
        "instances": "1",
        "ranks": "1",
        "device": "cpu",
        "samples_per_step": "6.4e+01",
        "parameters": "11000000",
    }


def test_a_run_with_few_steps_has_no_summary() -> None:
    assert summarize_run(cpu_job(seconds=5.5)) is None


def test_a_run_can_be_compared_with_the_summary_of_another() -> None:
    earlier = [summarize_run(replace(job(0.2), job=f"mnist-{number}")) for number in range(3)]
    known = [each for each in earlier if each is not None]
    assert regression(job(0.2), known) is None
    found = regression(job(0.26, wait=0.27), known)
    assert found is not None
    assert found.phase is P.DATA_WAIT
