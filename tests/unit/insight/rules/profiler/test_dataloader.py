import pytest

from tests.profiles import cpu_hardware, job, loader, rank, step_times
from tests.unit.insight.rules.profiler.checking import check, has_triggered
from tests.unit.insight.rules.profiler.test_cpu_bottleneck import waiting
from trainyard.formats.profiles.contract import ProgramChange
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.judge import judge_profile
from trainyard.insight.rules.contract import Severity

WORKERS = ProgramChange.LOADER_WORKERS


def with_workers(
    workers: int,
    *,
    cores: int = 4,
    wait: float = 0.02,
    busy: float = 40.0,
    fetch_s: float = 0.05,
    seconds: float = 200,
    ranks: int = 1,
) -> JobProfile:
    steps = step_times(seconds, step_s=0.1, shares=waiting(wait))
    members = [rank(steps, number=number, loaders=[loader(workers, fetch_s=fetch_s)]) for number in range(ranks)]
    return job(seconds, cpu_hardware(seconds, cores=cores, busy=busy), *members, cores=cores)


@pytest.mark.parametrize(("workers", "expected"), [(1, False), (4, False), (8, False), (9, True), (32, True)])
def test_more_workers_than_twice_the_cores_are_too_many(workers: int, expected: bool) -> None:
    assert has_triggered("Dataloader", with_workers(workers)) is expected


def test_eight_workers_on_a_small_machine_are_found_and_fewer_recommended() -> None:
    profile = with_workers(8, cores=2, busy=99.0, wait=0.3)
    found = check("Dataloader", profile)
    (finding,) = found.findings
    assert finding.severity is Severity.WARNING
    assert "8 worker processes for 2 cores" in finding.message
    assert "the job keeps 1.9 of the cores busy" in finding.message
    assert "still spend 30 % of their time waiting for data" in finding.message
    assert found.details["algo-1"]["recommended_workers"] <= 2


def test_workers_that_only_take_memory_are_a_notice() -> None:
    (finding,) = check("Dataloader", with_workers(12, busy=20.0)).findings
    assert finding.severity is Severity.NOTICE


def test_many_workers_that_wait_for_the_network_are_needed() -> None:
    assert not has_triggered("Dataloader", with_workers(24, busy=20.0, fetch_s=2.0))


@pytest.mark.parametrize(("wait", "expected"), [(0.02, False), (0.09, False), (0.12, True), (0.7, True)])
def test_few_workers_are_a_finding_if_steps_wait_for_them(wait: float, expected: bool) -> None:
    assert has_triggered("Dataloader", with_workers(1, cores=8, wait=wait)) is expected


def test_a_loader_without_workers_that_steps_wait_for_gets_as_many_as_keep_up() -> None:
    found = check("Dataloader", with_workers(0, cores=8, wait=0.6, busy=15.0, fetch_s=0.1))
    (finding,) = found.findings
    # A batch takes 0.1 s to make and 0.04 s to train on.
    assert found.details["algo-1"]["recommended_workers"] == 3
    assert "With 3 workers, steps would be up to 2.5 times as fast" in finding.message


def test_workers_that_mostly_wait_may_be_more_than_the_cores_and_gain_only_what_they_can() -> None:
    found = check("Dataloader", with_workers(0, cores=2, wait=0.95, busy=5.0, fetch_s=0.1))
    assert found.details["algo-1"]["recommended_workers"] == 8
    # Without any wait, steps would be twenty times as fast; eight workers make eight batches at a time.
    assert found.details["algo-1"]["max_speedup"] == pytest.approx(8, abs=1)


def test_few_workers_are_no_finding_where_no_core_is_free() -> None:
    assert not has_triggered("Dataloader", with_workers(1, cores=2, wait=0.4, busy=99.0))


def test_other_jobs_on_the_machine_do_not_make_more_workers_useless() -> None:
    steps = step_times(200, step_s=0.1, shares=waiting(0.5))
    hardware = cpu_hardware(200, cores=4, busy=99.0, job=25.0, cpu_pressure=60.0)
    assert has_triggered("Dataloader", job(200, hardware, rank(steps, loaders=[loader(0)]), cores=4))


def test_awss_rule_finds_few_workers_whether_steps_wait_or_not() -> None:
    assert has_triggered("Dataloader", with_workers(1, cores=8), defaults="aws")


def test_the_workers_of_all_ranks_share_the_cores_of_a_host() -> None:
    found = check("Dataloader", with_workers(3, cores=4, ranks=4))
    assert found.details["algo-1"]["workers"] == 12
    assert "1 worker for each rank is enough" in found.findings[0].message


def test_programs_that_wait_for_a_core_because_of_other_jobs_are_told_so() -> None:
    steps = step_times(200, step_s=0.1, shares=waiting(0.3))
    hardware = cpu_hardware(200, cores=2, busy=99.0, job=15.0, cpu_pressure=60.0)
    (finding,) = check("Dataloader", job(200, hardware, rank(steps, loaders=[loader(8)]), cores=2)).findings
    assert "programs on the machine wait for a core 60 % of the time" in finding.message


@pytest.mark.parametrize(
    "profile",
    [
        with_workers(8, cores=2, busy=99.0, wait=0.3),
        with_workers(8, cores=2, busy=60.0, wait=0.3),
        with_workers(0, cores=8, wait=0.6, busy=15.0, fetch_s=0.1),
        with_workers(0, cores=2, wait=0.95, busy=5.0, fetch_s=0.1),
        with_workers(1, cores=8, wait=0.7, busy=30.0),
        with_workers(12, cores=4, busy=20.0),
        with_workers(3, cores=4, ranks=4),
    ],
)
def test_the_rule_and_the_verdict_name_the_same_number_of_workers(profile: JobProfile) -> None:
    details = check("Dataloader", profile).details["algo-1"]
    advised = [each.changes[WORKERS] for each in judge_profile(profile).advice if WORKERS in each.changes]
    assert advised == [str(details["recommended_workers"])]


def test_without_loaders_the_rule_cannot_judge() -> None:
    profile = job(100, cpu_hardware(100), rank(step_times(100)))
    assert check("Dataloader", profile).undecided == "No steps with data loaders are known."


def test_without_samples_the_cores_of_the_instance_count() -> None:
    profile = with_workers(12)
    bare = JobProfile(profile.job, profile.started_us, profile.ended_us, {}, profile.instances, profile.ranks)
    found = check("Dataloader", bare)
    assert len(found.findings) == 1
    assert found.details["algo-1"]["cores_used"] is None
