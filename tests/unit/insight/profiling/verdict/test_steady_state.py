"""The steps and samples that a verdict is based on."""

from dataclasses import replace

import numpy as np
import pytest

from tests.faulty_profiles import cpu_job, gpu_job
from tests.profiles import cpu_hardware, job, loader, rank, step_times, with_evaluations
from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.steady_state import SteadyState, find_steady_state, training_steps


def steady(profile: JobProfile) -> SteadyState:
    found = find_steady_state(profile)
    assert found is not None
    return found


def test_the_warm_up_is_left_out() -> None:
    durations = np.r_[[8.0, 3.0, 0.5], np.full(97, 0.2)]
    state = steady(cpu_job(step_s=durations, seconds=60))
    assert state.lead.steps == 97
    assert state.step_s == pytest.approx(0.2, rel=0.05)


def test_slow_steps_later_are_no_warm_up() -> None:
    durations = np.r_[np.full(50, 0.2), [3.0], np.full(49, 0.2)]
    assert steady(cpu_job(step_s=durations, seconds=60)).lead.steps == 99


def test_evaluations_are_not_training_steps() -> None:
    steps = with_evaluations(step_times(60, step_s=0.2), every=50, seconds=5.0)
    state = steady(job(60, cpu_hardware(60), rank(steps)))
    assert state.step_s == pytest.approx(0.2, rel=0.05)


def test_steps_that_share_a_row_count_each() -> None:
    steps = step_times(60, step_s=0.002, counts=50)
    state = steady(job(60, cpu_hardware(60), rank(steps)))
    assert state.step_s == pytest.approx(0.002, rel=0.05)
    assert state.lead.steps == training_steps(state.profile) - 50


def test_one_event_is_left_out_with_a_note() -> None:
    durations = np.full(200, 0.2)
    durations[120] = 900.0
    state = steady(cpu_job(step_s=durations, seconds=1000))
    assert state.step_s == pytest.approx(0.2, rel=0.05)
    assert len(state.notes) == 1
    assert state.notes[0].startswith("Step 120 of worker_0 took ")


def test_several_long_steps_are_no_event() -> None:
    durations = np.full(200, 0.2)
    durations[[50, 100, 150]] = 10.0
    assert not steady(cpu_job(step_s=durations, seconds=100)).notes


def test_a_job_with_few_steps_has_no_steady_state() -> None:
    assert find_steady_state(cpu_job(step_s=np.full(5, 0.2), seconds=10)) is None
    assert find_steady_state(cpu_job(step_s=np.full(6, 0.2), seconds=10)) is not None


def test_phases_of_a_step_add_up_to_it() -> None:
    state = steady(cpu_job(StepPhase.DATA_WAIT, 0.4))
    assert sum(state.phases_s.values()) == pytest.approx(state.step_s)
    assert state.share(StepPhase.DATA_WAIT) == pytest.approx(0.4)


def test_a_short_training_beside_the_long_one_does_not_count() -> None:
    profile = cpu_job(seconds=100)
    extra = rank(step_times(10, step_s=1.0), number=1)
    state = steady(replace(profile, ranks=[*profile.ranks, extra]))
    assert [each.name for each in state.ranks] == ["worker_0"]


def test_samples_are_those_of_the_steady_steps() -> None:
    busy = np.where(np.arange(120) < 5, 0.0, 80.0)
    state = steady(cpu_job(busy=busy))
    assert state.mean(HardwareMetric.CPU_PERCENT, "total") == pytest.approx(80, abs=1)
    assert state.cores_used == pytest.approx(2 * 0.8 * 0.97, abs=0.05)


def test_values_that_are_missing_do_not_count() -> None:
    job_cpu = np.full(120, 50.0)
    job_cpu[::2] = np.nan
    state = steady(cpu_job(job=job_cpu))
    assert state.cores_used == pytest.approx(1.0, abs=0.05)


def test_the_loader_of_the_training_is_the_one_that_takes_most_time() -> None:
    loaders = [replace(loader(0, wait_s=0.001), name="evaluation"), replace(loader(2, wait_s=0.1), name="training")]
    state = steady(cpu_job(loaders=loaders))
    assert state.loader is not None
    assert state.loader.name == "training"


def test_a_gpu_that_is_not_used_does_not_lower_the_use_of_the_others() -> None:
    busy = steady(gpu_job(gpus=2, gpu_busy=90.0))
    assert busy.gpu_use == pytest.approx(0.9, abs=0.02)
    assert busy.idle_bound(0.5) == pytest.approx(0.1, abs=0.02)
