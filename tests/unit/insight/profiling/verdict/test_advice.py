"""Advice: the changes that a trial can make, and what is advised on setups of the machine."""

import numpy as np
import pytest

from tests.faulty_profiles import cpu_job, gpu_job, hot_line, ranks_job, shares
from tests.profiles import loader
from trainyard.formats.profiles.contract import ProgramChange, StepPhase
from trainyard.insight.profiling.contract import InstanceFacts, JobProfile
from trainyard.insight.profiling.verdict.contract import ProfileAdvice
from trainyard.insight.profiling.verdict.judge import judge_profile

P, C = StepPhase, ProgramChange
GIB = 1024**3
TYPES = {
    "ml.t3.medium": InstanceFacts("ml.t3.medium", 1, 4 * GIB, price_per_hour=0.05, currency="USD"),
    "ml.m5.large": InstanceFacts("ml.m5.large", 2, 8 * GIB, price_per_hour=0.096, currency="USD"),
    "ml.m5.2xlarge": InstanceFacts("ml.m5.2xlarge", 8, 32 * GIB, price_per_hour=0.384, currency="USD"),
    "ml.c5.4xlarge": InstanceFacts("ml.c5.4xlarge", 16, 32 * GIB, price_per_hour=0.9, currency="USD"),
    "ml.g5.xlarge": InstanceFacts("ml.g5.xlarge", 4, 16 * GIB, ("NVIDIA A10G",), 1.006, "USD"),
    "ml.g5.small": InstanceFacts("ml.g5.small", 2, 12 * GIB, ("NVIDIA A10G",), 0.7, "USD"),
    "ml.euro": InstanceFacts("ml.euro", 1, 8 * GIB, price_per_hour=0.001, currency="EUR"),
}


def advice(profile: JobProfile) -> list[ProfileAdvice]:
    return list(judge_profile(profile, instance_types=TYPES).advice)


def changes(profile: JobProfile) -> dict[ProgramChange, str]:
    """Return all changes, the first of each kind."""
    found: dict[ProgramChange, str] = {}
    for each in advice(profile):
        found = {**each.changes, **found}
    return found


def types(profile: JobProfile) -> list[str]:
    return [each.instance_type for each in advice(profile) if each.instance_type]


def test_a_computing_loader_gets_as_many_workers_as_it_needs_up_to_the_cores() -> None:
    slow = cpu_job(P.DATA_WAIT, 0.6, step_s=0.2, loaders=[loader(0, fetch_s=0.12)], busy=98, job=97, cores=8)
    assert changes(slow)[C.LOADER_WORKERS] == "2"
    slower = cpu_job(P.DATA_WAIT, 0.95, step_s=0.2, loaders=[loader(0, fetch_s=0.19)], busy=98, job=97, cores=8)
    assert changes(slower)[C.LOADER_WORKERS] == "8"


def test_a_waiting_loader_may_have_more_workers_than_cores() -> None:
    profile = cpu_job(P.DATA_WAIT, 0.9, step_s=0.2, loaders=[loader(1, fetch_s=0.1)], busy=20, job=12, read_mb_s=0)
    assert changes(profile)[C.LOADER_WORKERS] == "6"


def test_too_many_workers_are_reduced_to_the_cores() -> None:
    profile = cpu_job(P.DATA_WAIT, 0.5, loaders=[loader(8, fetch_s=0.6)], busy=99, job=97)
    first = advice(profile)[0]
    assert first.title == "Use 2 data workers instead of 8"
    assert first.changes == {C.LOADER_WORKERS: "2"}


def test_more_workers_than_cores_are_reduced_even_if_they_cost_little() -> None:
    profile = cpu_job(P.DATA_WAIT, 0.03, loaders=[loader(8, fetch_s=0.05)])
    assert changes(profile)[C.LOADER_WORKERS] == "1"
    waiting = cpu_job(P.DATA_WAIT, 0.03, loaders=[loader(8, fetch_s=1.5)], busy=60, job=55)
    assert C.LOADER_WORKERS not in changes(waiting)


def test_workers_that_are_started_often_are_kept() -> None:
    starts = np.where(np.arange(600) % 30 == 0, 2.0, 0.0)
    profile = cpu_job(
        P.DATA_WAIT, 0.01, step_s=np.full(600, 0.1), added_s={P.DATA_WAIT: starts}, loaders=[loader(2, fetch_s=0.05)]
    )
    assert changes(profile)[C.PERSISTENT_WORKERS] == "true"


def test_uneven_batches_are_fetched_further_ahead() -> None:
    uneven = loader(4, fetch_s=0.1)
    uneven = type(uneven)("Images", 4, False, 2, 64, (*[0.1] * 15, 2.0), (0.2,) * 8)
    assert changes(cpu_job(P.DATA_WAIT, 0.5, loaders=[uneven], job=50))[C.PREFETCH_FACTOR] == "4"


def test_small_batches_grow_and_the_bound_is_their_ratio() -> None:
    facts = {"samples_per_step": 2.0, "parameters": 20_000}
    profile = cpu_job(P.OPTIMIZER, 0.3, step_s=0.001, facts=facts, loaders=[loader(0, batch_size=2)], seconds=20)
    first = advice(profile)[0]
    assert first.changes == {C.BATCH_SIZE: "16"}
    assert first.max_speedup == 8


def test_float32_on_a_gpu_becomes_bfloat16_and_images_channels_last() -> None:
    found = changes(gpu_job(facts={"precision": "float32", "has_convolutions": True}))
    assert found[C.PRECISION] == "bfloat16"
    assert found[C.CHANNELS_LAST] == "true"
    assert C.CHANNELS_LAST not in changes(gpu_job(facts={"has_convolutions": True, "is_channels_last": True}))


def test_copies_are_made_from_pinned_memory() -> None:
    assert changes(gpu_job(P.HOST_TO_DEVICE, 0.4, gpu_busy=58, loaders=[loader(3)]))[C.PIN_MEMORY] == "true"
    assert C.PIN_MEMORY not in changes(gpu_job(P.HOST_TO_DEVICE, 0.4, gpu_busy=58))


def test_models_are_compiled_once() -> None:
    assert changes(cpu_job())[C.COMPILE] == "true"
    assert C.COMPILE not in changes(cpu_job(facts={"is_compiled": True}))


@pytest.mark.parametrize(("threads", "job", "wanted"), [(1, 12.0, "8"), (16, 95.0, "8"), (8, 95.0, None)])
def test_threads_are_as_many_as_cores(threads: int, job: float, wanted: str | None) -> None:
    found = changes(cpu_job(facts={"threads": threads}, cores=8, job=job, busy=job))
    assert found.get(C.THREADS) == wanted


def test_ranks_of_a_host_share_its_cores() -> None:
    profile = ranks_job(shares(P.FORWARD, 0.3), shares(P.FORWARD, 0.3))
    assert C.THREADS not in changes(profile)


def test_a_hot_line_is_named() -> None:
    facts = {"hot_lines": (hot_line(P.OTHER, 60),), "stack_samples": 120}
    first = advice(cpu_job(P.OTHER, 0.5, facts=facts, job=60))[0]
    assert first.title == "Rewrite entropy (train.py:20)"
    assert not first.changes


def test_advice_is_given_once() -> None:
    titles = [each.title for each in advice(gpu_job(facts={"precision": "float32", "has_convolutions": True}))]
    assert len(titles) == len(set(titles))


def test_a_job_that_uses_little_gets_a_smaller_type() -> None:
    profile = cpu_job(busy=30, job=25, memory=20)
    (found,) = [each for each in advice(profile) if each.instance_type]
    assert found.instance_type == "ml.t3.medium"
    assert found.saved_per_hour == pytest.approx(0.046)
    assert "saves 0.046 USD per hour" in found.reason


def test_a_smaller_type_needs_the_memory_that_the_job_uses() -> None:
    assert types(cpu_job(busy=30, job=25, memory=80)) == []


def test_a_job_on_a_gpu_keeps_its_gpu() -> None:
    profile = gpu_job(busy=20, job=15, memory=20)
    assert types(profile) == ["ml.g5.small"]


def test_a_job_that_fills_its_cores_gets_a_larger_type_if_that_can_pay() -> None:
    profile = cpu_job(P.DATA_WAIT, 0.9, loaders=[loader(2, fetch_s=0.4)], busy=99, job=98, memory=20)
    (found,) = [each for each in advice(profile) if each.instance_type]
    assert found.instance_type == "ml.m5.2xlarge"
    assert found.saved_per_hour is None
    assert found.max_speedup == pytest.approx(4.0)


def test_a_larger_type_that_costs_more_than_it_can_gain_is_not_advised() -> None:
    profile = cpu_job(P.DATA_WAIT, 0.3, loaders=[loader(2, fetch_s=0.4)], busy=99, job=98, memory=20)
    assert types(profile) == []


def test_types_are_not_judged_without_samples() -> None:
    profile = cpu_job()
    assert not [each for each in judge_profile(profile).advice if each.instance_type]
