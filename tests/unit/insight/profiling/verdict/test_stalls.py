"""Checkpoints, and long starts."""

from dataclasses import replace

import numpy as np
import pytest

from tests.faulty_profiles import cpu_job, every
from tests.profiles import at_us
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.detectors.stalls import find_checkpoints, find_initialization
from trainyard.insight.profiling.verdict.steady_state import find_steady_state


def checkpoints(number: int, seconds: float) -> JobProfile:
    return cpu_job(step_s=np.full(500, 0.2), added_s={StepPhase.CHECKPOINT: every(500, number, seconds)})


def test_checkpoints_are_named_with_how_often_and_how_long() -> None:
    state = find_steady_state(checkpoints(20, 2.0))
    assert state is not None
    found = find_checkpoints(state)
    assert found is not None
    assert found.evidence[0] == "It saves after every 20 steps, and waits 2 s each time."
    assert found.share == pytest.approx(1 / 3, abs=0.01)
    assert found.max_speedup is not None
    assert 1.5 <= found.max_speedup < 1.65


def test_checkpoints_that_take_little_are_none() -> None:
    state = find_steady_state(checkpoints(100, 0.5))
    assert state is not None
    assert find_checkpoints(state) is None


def starting(start_s: float, total_s: float) -> JobProfile:
    profile = cpu_job(seconds=total_s)
    (rank,) = profile.ranks
    delay = round((start_s - 5) * 1e6)
    steps = replace(rank.steps, starts_us=rank.steps.starts_us + delay, ends_us=rank.steps.ends_us + delay)
    return replace(profile, ranks=[replace(rank, steps=steps)])


def test_a_start_that_outweighs_the_steps_is_named() -> None:
    found = find_initialization(ended(starting(600, 100), 700))
    assert found is not None
    assert found.share == pytest.approx(600 / 700)
    assert "10 minutes" in found.evidence[0]


@pytest.mark.parametrize(("start_s", "total_s"), [(30, 40), (600, 3600), (5, 10)])
def test_a_short_start_is_none(start_s: float, total_s: float) -> None:
    assert find_initialization(ended(starting(start_s, total_s), start_s + total_s)) is None


def ended(profile: JobProfile, seconds: float) -> JobProfile:
    return replace(profile, ended_us=at_us(seconds))


def test_how_long_a_running_job_will_take_is_not_known() -> None:
    assert find_initialization(replace(starting(600, 100), ended_us=None)) is None
    assert find_initialization(replace(cpu_job(), ranks=(), ended_us=None)) is None
