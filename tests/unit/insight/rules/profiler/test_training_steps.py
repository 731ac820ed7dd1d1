from dataclasses import replace

import numpy as np
import pytest

from tests.profiles import HEALTHY, job, rank, step_times, with_evaluations
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import RankProfile
from trainyard.insight.rules.profiler.training_steps import TrainingSteps, training_steps


def steps_of(member: RankProfile) -> TrainingSteps:
    (found,) = training_steps(job(100, None, member))
    return found


def test_the_first_step_does_not_count() -> None:
    durations = np.array([30.0, *[0.1] * 50])
    found = steps_of(rank(step_times(0, step_s=durations, noise=0.0)))
    assert found.steps == 50
    assert found.step_s == pytest.approx(0.1)


def test_a_step_as_long_as_all_others_does_not_count() -> None:
    (found,) = training_steps(HEALTHY["suspended"]())
    assert found.step_s == pytest.approx(0.25, abs=0.01)


def test_only_training_steps_count() -> None:
    found = steps_of(rank(with_evaluations(step_times(100, step_s=0.1), seconds=3.0)))
    assert found.step_s == pytest.approx(0.1, abs=0.01)


def test_shares_are_of_the_time_and_means_of_the_steps() -> None:
    found = steps_of(rank(step_times(100, step_s=0.01, counts=10, noise=0.0)))
    assert found.share(StepPhase.BACKWARD, StepPhase.FORWARD) == pytest.approx(0.85)
    assert found.phase_step_s[StepPhase.BACKWARD] == pytest.approx(0.0053)
    assert found.steps == 10 * (len(found.rank.steps) - 1)


def test_times_that_cannot_be_are_none() -> None:
    steps = step_times(10, step_s=0.1, noise=0.0)
    phases = steps.phases_s.copy()
    phases[5] = [np.nan, -1, np.inf, 0, 0, 0, 0, 0.1]
    found = steps_of(rank(replace(steps, phases_s=phases)))
    assert found.seconds == pytest.approx(0.1 * found.steps)


def test_ranks_without_training_steps_are_left_out() -> None:
    assert training_steps(HEALTHY["starting"]()) == []
    assert training_steps(HEALTHY["two_hosts"](), host="algo-3") == []
