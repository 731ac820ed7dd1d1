"""Verdicts on whole profiles: every cause first where it is planted, and none on healthy jobs."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.faulty_profiles import cpu_job, every, gpu_job, hot_line, ranks_job, shares
from tests.profiles import HEALTHY, at_us, loader, until
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, StepPhase
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.insight.profiling.contract import HotLine, InstanceFacts, JobProfile, Synchronization
from trainyard.insight.profiling.verdict.contract import BottleneckKind, ProfileVerdict
from trainyard.insight.profiling.verdict.judge import judge_profile

K, M, P = BottleneckKind, HardwareMetric, StepPhase

PLANTED: dict[str, tuple[BottleneckKind, Callable[[], JobProfile]]] = {
    "a loader that computes": (
        K.DATA_LOADING,
        lambda: cpu_job(P.DATA_WAIT, 0.7, loaders=[loader(0, fetch_s=0.14)], busy=50, job=50),
    ),
    "a loader that waits for a service": (
        K.DATA_LOADING,
        lambda: cpu_job(P.DATA_WAIT, 0.7, loaders=[loader(0, fetch_s=0.14)], busy=20, job=15, read_mb_s=0),
    ),
    "reads": (
        K.READING,
        lambda: cpu_job(P.DATA_WAIT, 0.7, loaders=[loader(2, fetch_s=0.3)], busy=20, job=18, io_wait=60, read_mb_s=90),
    ),
    "reads from the network": (
        K.READING,
        lambda: cpu_job(P.DATA_WAIT, 0.7, loaders=[loader(2)], busy=20, job=15, read_mb_s=0, received_mb_s=50),
    ),
    "eight workers on two cores": (
        K.TOO_MANY_WORKERS,
        lambda: cpu_job(P.DATA_WAIT, 0.5, loaders=[loader(8, fetch_s=0.6)], busy=99, job=97),
    ),
    "checkpoints": (
        K.CHECKPOINTS,
        lambda: cpu_job(step_s=np.full(500, 0.2), added_s={P.CHECKPOINT: every(500, 20, 2.0)}),
    ),
    "a loop in Python": (
        K.PYTHON,
        lambda: cpu_job(P.OTHER, 0.5, facts={"hot_lines": (hot_line(P.OTHER, 60),), "stack_samples": 120}, job=60),
    ),
    "time that nothing explains": (K.PYTHON, lambda: cpu_job(P.OTHER, 0.5, job=60)),
    "a loop in the forward": (
        K.PYTHON,
        lambda: cpu_job(P.FORWARD, 0.7, facts={"hot_lines": (hot_line(P.FORWARD, 70),), "stack_samples": 100}, job=50),
    ),
    "two samples in a batch": (
        K.SMALL_BATCH,
        lambda: cpu_job(
            P.OPTIMIZER, 0.3, step_s=0.001, facts={"samples_per_step": 2.0, "parameters": 20_000}, seconds=20, job=50
        ),
    ),
    "one sample in a batch on a GPU": (
        K.SMALL_BATCH,
        lambda: gpu_job(step_s=0.01, gpu_busy=30, gpu_memory=10, facts={"samples_per_step": 1.0}),
    ),
    "launches": (K.SMALL_KERNELS, lambda: gpu_job(step_s=0.02, gpu_busy=40, facts={"samples_per_step": 512.0})),
    "float32 on a GPU": (K.PRECISION, lambda: gpu_job(facts={"precision": "float32"})),
    "item": (
        K.SYNCHRONIZATION,
        lambda: gpu_job(
            P.OTHER,
            0.5,
            gpu_busy=55,
            facts={"synchronizations": (Synchronization("item", 40, 0.09),), "stack_samples": 50},
        ),
    ),
    # As on an H200: what is computed only for .item() takes longer than its waits, and the GPU idles in between.
    "item for each row": (
        K.SYNCHRONIZATION,
        lambda: gpu_job(
            P.OTHER,
            0.6,
            gpu_busy=30,
            facts={
                "synchronizations": (Synchronization("item", 84, 0.044),),
                "stack_samples": 100,
                "hot_lines": (
                    HotLine(P.OTHER, "<module>", "train.py", 15, "x[row].sum().item()", 20),
                    HotLine(P.OTHER, "<module>", "train.py", 15, "x[row].sum()", 30),
                    HotLine(P.OTHER, "<module>", "train.py", 20, "time.time()", 5),
                ),
            },
        ),
    ),
    "copies to the GPU": (
        K.HOST_TO_DEVICE,
        lambda: gpu_job(P.HOST_TO_DEVICE, 0.4, gpu_busy=58, loaders=[loader(3)]),
    ),
    "data on a GPU": (
        K.DATA_LOADING,
        lambda: gpu_job(P.DATA_WAIT, 0.6, gpu_busy=40, loaders=[loader(1, fetch_s=0.19)], busy=30),
    ),
    "an idle GPU": (K.IDLE_GPU, lambda: idle_gpu()),
    "a slow rank": (
        K.SLOW_RANK,
        lambda: ranks_job(
            {P.OTHER: 0.05, P.FORWARD: 0.15, P.BACKWARD: 0.7, P.OPTIMIZER: 0.1},
            {P.OTHER: 0.05, P.FORWARD: 0.15, P.BACKWARD: 0.7, P.OPTIMIZER: 0.1},
            {P.OTHER: 0.45, P.FORWARD: 0.15, P.BACKWARD: 0.3, P.OPTIMIZER: 0.1},
        ),
    ),
    "collectives": (K.COMMUNICATION, lambda: ranks_job(shares(P.COMMUNICATION, 0.5), shares(P.COMMUNICATION, 0.5))),
    "gradients exchanged within the backward": (
        K.COMMUNICATION,
        lambda: ranks_job(*[{P.FORWARD: 0.1, P.BACKWARD: 0.85, P.OPTIMIZER: 0.05}] * 2),
    ),
    "a leak": (K.MEMORY_GROWTH, lambda: cpu_job(seconds=1800, memory=10 + np.arange(1800) / 40)),
    "a leak of the GPU": (K.MEMORY_GROWTH, lambda: gpu_job(seconds=900, gpu_memory=20 + np.arange(900) / 15)),
}


def idle_gpu(seconds: float = 120) -> JobProfile:
    profile = gpu_job(gpu_busy=0.0, seconds=seconds)
    (rank,) = profile.ranks
    return replace(profile, ranks=[replace(rank, program=replace(rank.program, device="cpu"))])


def test_a_program_that_trains_on_the_cpu_shows_an_idle_gpu_at_once() -> None:
    verdict = judge_profile(idle_gpu(seconds=28))
    assert verdict.bottleneck is not None
    assert verdict.bottleneck.kind is K.IDLE_GPU


def test_a_gpu_at_its_power_limit_computes_and_is_not_slowed_down() -> None:
    profile = gpu_job()
    samples = profile.hardware["algo-1"]
    capped = {
        HardwareSeries(M.GPU_THROTTLE_REASONS, "gpu0"): np.full(len(samples), 4.0),
        HardwareSeries(M.GPU_CLOCK_MHZ, "gpu0"): np.where(np.arange(len(samples)) < 30, 1980.0, 1500.0),
    }
    hardware = {"algo-1": replace(samples, series={**samples.series, **capped})}
    verdict = judge_profile(replace(profile, hardware=hardware))
    assert verdict.bottleneck is not None
    assert verdict.bottleneck.kind is K.COMPUTE


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_is_named_first(name: str) -> None:
    kind, make = PLANTED[name]
    verdict = judge_profile(make())
    assert verdict.bottleneck is not None
    assert verdict.bottleneck.kind is kind, verdict.summary
    assert verdict.summary.startswith(verdict.bottleneck.title)
    assert verdict.bottleneck.evidence
    assert verdict.advice
    assert verdict.advice[0].kind is kind
    assert all(each.share <= 1 for each in (verdict.bottleneck, *verdict.others))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_computes_or_has_too_few_steps(name: str) -> None:
    verdict = judge_profile(HEALTHY[name]())
    if verdict.bottleneck is None:
        assert name in {"empty", "starting", "one_sample", "without_steps"}
        assert "step" in verdict.summary
    else:
        assert verdict.bottleneck.kind is BottleneckKind.COMPUTE, verdict.summary
        assert verdict.bottleneck.max_speedup is None
        assert not verdict.others


@pytest.mark.parametrize("name", [*PLANTED, *HEALTHY])
def test_every_verdict_can_be_stored_as_json(name: str) -> None:
    verdict = judge_profile(PLANTED[name][1]() if name in PLANTED else HEALTHY[name]())
    stored = json.loads(json.dumps(to_plain(verdict), allow_nan=False))
    assert to_plain(from_plain(ProfileVerdict, stored)) == stored


def test_the_bound_is_the_time_without_the_cause() -> None:
    verdict = judge_profile(cpu_job(P.DATA_WAIT, 0.5, loaders=[loader(0)], job=50))
    assert verdict.bottleneck is not None
    assert verdict.bottleneck.share == pytest.approx(0.5)
    # The steps vary by a few percent, and without the cause all may be like the quickest.
    assert verdict.bottleneck.max_speedup is not None
    assert 2.0 <= verdict.bottleneck.max_speedup < 2.2
    assert verdict.summary.endswith("Without that, the job would be at most 2.1 times as fast.")


def test_further_causes_follow_in_order_and_computing_comes_last() -> None:
    profile = cpu_job(P.DATA_WAIT, 0.4, step_s=np.full(500, 0.2), added_s={P.CHECKPOINT: every(500, 20, 1.0)}, job=50)
    verdict = judge_profile(profile)
    assert verdict.bottleneck is not None
    kinds = [each.kind for each in (verdict.bottleneck, *verdict.others)]
    assert kinds == [K.DATA_LOADING, K.CHECKPOINTS, K.COMPUTE]


def test_a_leak_is_named_before_what_only_costs_time() -> None:
    verdict = judge_profile(cpu_job(P.DATA_WAIT, 0.9, seconds=1800, memory=10 + np.arange(1800) / 40, job=50))
    assert verdict.bottleneck is not None
    assert verdict.bottleneck.kind is K.MEMORY_GROWTH
    assert "the job fails" in verdict.summary
    assert verdict.others[0].kind is K.DATA_LOADING


def test_too_few_steps_say_how_many_are_missing() -> None:
    verdict = judge_profile(cpu_job(seconds=5.5, is_running=True))
    assert verdict.bottleneck is None
    assert verdict.summary == "Only 2 training steps so far; a verdict needs 5 after the warm-up."


def test_a_running_job_without_steps_says_for_how_long() -> None:
    verdict = judge_profile(replace(HEALTHY["without_steps"](), ended_us=None))
    assert verdict.bottleneck is None
    assert (
        verdict.summary == "No training step has been timed in 30 minutes; the verdict follows after the first steps."
    )


# A data set that is cached in memory cannot be told from a leak before its first epoch is over.
CACHING = ("long_on_cpu", "caching_on_cpu")


@pytest.mark.parametrize("name", [name for name in HEALTHY if name not in CACHING])
@pytest.mark.parametrize("part", [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 0.9])
def test_a_healthy_job_is_healthy_while_it_runs(name: str, part: float) -> None:
    profile = HEALTHY[name]()
    seconds = ((profile.ended_us or at_us(400)) - profile.started_us) / 1e6
    verdict = judge_profile(until(profile, seconds * part))
    assert verdict.bottleneck is None or verdict.bottleneck.kind is BottleneckKind.COMPUTE, verdict.summary


def test_an_ended_job_without_steps_is_described_by_its_use_of_the_hardware() -> None:
    verdict = judge_profile(HEALTHY["without_steps"]())
    assert verdict.bottleneck is None
    assert verdict.notes == ("The job used 78 % of the cores of algo-1.",)


def test_an_idle_gpu_is_seen_without_steps() -> None:
    verdict = judge_profile(replace(gpu_job(gpu_busy=0.0), ranks=()))
    assert verdict.bottleneck is not None
    assert verdict.bottleneck.kind is K.IDLE_GPU


def test_notes_of_the_profile_are_kept() -> None:
    verdict = judge_profile(replace(cpu_job(), notes=("A file is torn.",)))
    assert verdict.notes == ("A file is torn.",)


def test_a_job_without_samples_of_the_hardware_is_judged_by_its_steps() -> None:
    verdict = judge_profile(replace(cpu_job(P.DATA_WAIT, 0.5, loaders=[loader(0)]), hardware={}, instances={}))
    assert verdict.bottleneck is not None
    assert verdict.bottleneck.kind is K.DATA_LOADING
    assert "no samples of the hardware" in verdict.notes[-1]


def test_other_work_on_a_full_machine_is_noted() -> None:
    verdict = judge_profile(cpu_job(busy=99, job=30))
    assert any("Other work" in note for note in verdict.notes)


def test_types_of_the_yard_give_advice_in_money() -> None:
    small = InstanceFacts("ml.t3.small", 1, 8 * 1024**3, price_per_hour=0.05, currency="USD")
    verdict = judge_profile(cpu_job(busy=30, job=25), instance_types={"ml.t3.small": small})
    assert [each.saved_per_hour for each in verdict.advice if each.instance_type] == [pytest.approx(0.046)]
