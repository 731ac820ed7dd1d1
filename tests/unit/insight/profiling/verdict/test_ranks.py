"""Slow ranks and communication, and ranks that only look like it."""

from dataclasses import replace

import numpy as np
import pytest

from tests.faulty_profiles import ranks_job, shares
from tests.profiles import COMPUTING, cpu_hardware, job, rank, step_times
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.contract import Bottleneck
from trainyard.insight.profiling.verdict.detectors.ranks import find_communication, find_slow_rank
from trainyard.insight.profiling.verdict.steady_state import SteadyState, find_steady_state

P = StepPhase
FAST = {P.FORWARD: 0.2, P.BACKWARD: 0.4, P.OPTIMIZER: 0.1, P.COMMUNICATION: 0.3}
SLOW = {P.DATA_WAIT: 0.3, P.FORWARD: 0.2, P.BACKWARD: 0.4, P.OPTIMIZER: 0.1}


def steady(profile: JobProfile) -> SteadyState:
    found = find_steady_state(profile)
    assert found is not None
    return found


def slow_rank(*phases: dict[StepPhase, float]) -> Bottleneck | None:
    return find_slow_rank(steady(ranks_job(*phases)))


def test_the_rank_that_waits_for_nobody_is_the_slow_one() -> None:
    found = slow_rank(FAST, FAST, SLOW, FAST)
    assert found is not None
    assert "worker_2 on algo-1" in found.title
    assert "waiting for data" in found.evidence[1]
    assert found.max_speedup == pytest.approx(1 / 0.7, rel=0.05)


def test_waiting_for_a_slow_rank_is_no_communication() -> None:
    assert find_communication(steady(ranks_job(FAST, SLOW))) is None


def test_equal_ranks_have_no_slow_one() -> None:
    assert slow_rank(FAST, FAST) is None
    assert slow_rank(FAST) is None


def test_ranks_that_do_not_wait_for_each_other_have_no_slow_one() -> None:
    ranks = [rank(step_times(60, step_s=0.1 * (number + 1)), number=number) for number in range(2)]
    assert find_slow_rank(steady(job(60, cpu_hardware(60), *ranks))) is None


def test_a_rank_that_was_slow_once_is_not_the_slow_one() -> None:
    count = 500
    event = np.where((np.arange(count) > 200) & (np.arange(count) < 260), 0.3, 0.0)
    ranks = [
        rank(
            step_times(100, step_s=np.full(count, 0.15), added_s={P.OTHER if number else P.COMMUNICATION: event}),
            number=number,
        )
        for number in range(2)
    ]
    assert find_slow_rank(steady(job(200, cpu_hardware(200), *ranks))) is None


def test_the_backward_of_one_rank_is_all_computing() -> None:
    assert find_communication(steady(ranks_job({P.FORWARD: 0.1, P.BACKWARD: 0.9}))) is None


def test_little_communication_is_none() -> None:
    assert find_communication(steady(ranks_job(*[shares(P.COMMUNICATION, 0.06)] * 2))) is None


def test_communication_is_what_all_ranks_spend_on_it() -> None:
    found = find_communication(steady(ranks_job(shares(P.COMMUNICATION, 0.5), shares(P.COMMUNICATION, 0.3))))
    assert found is not None
    assert found.share == pytest.approx(0.3, abs=0.01)


def test_ranks_on_several_hosts_are_named_with_theirs() -> None:
    profile = ranks_job(FAST, SLOW)
    moved = [replace(each, host=f"algo-{number + 1}") for number, each in enumerate(profile.ranks)]
    found = find_slow_rank(steady(replace(profile, ranks=moved)))
    assert found is not None
    assert "worker_1 on algo-2" in found.title


def test_healthy_phases_have_no_communication_in_the_backward() -> None:
    assert find_communication(steady(ranks_job(COMPUTING, COMPUTING))) is None
