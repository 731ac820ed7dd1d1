import pytest

from tests.profiles import cpu_hardware, gpu_hardware, job, rank, step_times
from tests.unit.insight.rules.profiler.checking import check, has_triggered


@pytest.mark.parametrize(("minutes", "expected"), [(1, False), (19, False), (21, True), (60, True)])
def test_a_first_step_that_comes_late_is_found(minutes: int, expected: bool) -> None:
    seconds = (minutes + 5) * 60
    profile = job(seconds, cpu_hardware(seconds, interval_s=10), rank(step_times(seconds, begin_s=minutes * 60)))
    assert has_triggered("MaxInitializationTime", profile) is expected


@pytest.mark.parametrize(("minutes", "expected"), [(19, False), (21, True)])
def test_a_running_job_whose_first_step_has_not_come_is_found(minutes: int, expected: bool) -> None:
    seconds = minutes * 60 + 10
    profile = job(seconds, gpu_hardware(seconds, interval_s=5, starting_s=1e9), cores=4, gpus=1, is_running=True)
    found = check("MaxInitializationTime", profile)
    assert bool(found.findings) is expected
    assert bool(found.undecided) is not expected


def test_the_threshold_is_in_minutes() -> None:
    profile = job(300, cpu_hardware(300), rank(step_times(300, begin_s=120)))
    (finding,) = check("MaxInitializationTime", profile, threshold=1.5).findings
    assert "took 2 minutes until the first step (limit 1.5), 40 % of the job's time" in finding.message


def test_a_program_whose_steps_are_not_seen_may_train_all_the_same() -> None:
    busy = check("MaxInitializationTime", job(3600, cpu_hardware(3600, interval_s=10, busy=90.0), is_running=True))
    assert not busy.findings
    assert "not timed" in busy.undecided
    idle = job(3600, cpu_hardware(3600, interval_s=10, busy=1.0), is_running=True)
    assert has_triggered("MaxInitializationTime", idle)
