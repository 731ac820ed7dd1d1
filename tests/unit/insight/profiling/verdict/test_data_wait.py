"""What the wait for data is due to, by the loader and the hardware."""

from dataclasses import replace

import numpy as np
import pytest

from tests.faulty_profiles import cpu_job, gpu_job
from tests.profiles import loader
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile, LoaderFacts
from trainyard.insight.profiling.verdict.contract import Bottleneck, BottleneckKind
from trainyard.insight.profiling.verdict.detectors.data_wait import find_data_wait
from trainyard.insight.profiling.verdict.loader_load import measure_loader
from trainyard.insight.profiling.verdict.steady_state import SteadyState, find_steady_state

K, WAIT = BottleneckKind, StepPhase.DATA_WAIT


def steady(profile: JobProfile) -> SteadyState:
    found = find_steady_state(profile)
    assert found is not None
    return found


def found(profile: JobProfile) -> Bottleneck | None:
    return find_data_wait(steady(profile))


def kind(profile: JobProfile) -> BottleneckKind | None:
    bottleneck = found(profile)
    return bottleneck.kind if bottleneck is not None else None


def test_a_short_wait_is_none() -> None:
    assert found(cpu_job(WAIT, 0.08, loaders=[loader(2)])) is None


def test_a_wait_while_the_gpu_computes_costs_nothing() -> None:
    assert found(gpu_job(WAIT, 0.5, gpu_busy=97)) is None


def test_needed_workers_are_the_time_of_a_batch_by_that_of_a_step() -> None:
    load = measure_loader(steady(cpu_job(WAIT, 0.5, step_s=0.2, loaders=[loader(1, fetch_s=0.38)])))
    assert load.needed_workers == 4


@pytest.mark.parametrize("job", [50.0, 97.0])
def test_as_many_workers_as_cores_are_not_too_many(job: float) -> None:
    assert kind(cpu_job(WAIT, 0.5, loaders=[loader(2, fetch_s=0.4)], busy=99, job=job)) is K.DATA_LOADING


def test_many_workers_that_wait_are_not_too_many() -> None:
    profile = cpu_job(WAIT, 0.5, loaders=[loader(8, fetch_s=1.5)], busy=20, job=15, read_mb_s=0, received_mb_s=0)
    assert kind(profile) is K.DATA_LOADING


def test_many_workers_on_many_cores_are_not_too_many() -> None:
    profile = cpu_job(WAIT, 0.5, loaders=[loader(8, fetch_s=0.6)], busy=60, job=55, cores=16)
    assert kind(profile) is K.DATA_LOADING


def epochs(facts: LoaderFacts) -> JobProfile:
    """Steps that wait only at the beginning of each epoch."""
    starts = np.where(np.arange(600) % 30 == 0, 2.0, 0.0)
    return cpu_job(WAIT, 0.01, step_s=np.full(600, 0.1), added_s={WAIT: starts}, loaders=[facts], busy=50, job=45)


def test_workers_that_are_started_for_each_epoch_are_seen() -> None:
    bottleneck = found(epochs(loader(8, fetch_s=0.05)))
    assert bottleneck is not None
    assert bottleneck.kind is K.TOO_MANY_WORKERS
    assert any("started again for each epoch" in each for each in bottleneck.evidence)


def test_workers_that_are_kept_are_not_started_again() -> None:
    profile = epochs(replace(loader(2, fetch_s=0.05), is_persistent=True))
    assert not measure_loader(steady(profile)).starts_workers_often
    assert measure_loader(steady(epochs(loader(2, fetch_s=0.05)))).starts_workers_often


def test_a_loader_that_computes_on_what_it_reads_is_no_reader() -> None:
    profile = cpu_job(WAIT, 0.7, loaders=[loader(2, fetch_s=0.3)], busy=98, job=96, read_mb_s=60)
    assert kind(profile) is K.DATA_LOADING


def test_other_jobs_that_wait_for_the_disk_make_no_reader() -> None:
    profile = cpu_job(WAIT, 0.7, loaders=[loader(0)], busy=20, job=15, io_wait=50, read_mb_s=0, received_mb_s=0)
    assert kind(profile) is K.DATA_LOADING


def test_a_program_without_a_loader_of_torch_is_judged_too() -> None:
    bottleneck = found(cpu_job(WAIT, 0.5))
    assert bottleneck is not None
    assert len(bottleneck.evidence) == 1
