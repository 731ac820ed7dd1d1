"""Profiles that no sound program makes: whatever a program wrote, there is a verdict, and it can be stored."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.profiles import START_US, job
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.foundation.plain import to_plain
from trainyard.insight.profiling.contract import (
    HardwareSamples,
    HotLine,
    InstanceFacts,
    JobProfile,
    LoaderFacts,
    MemoryHolder,
    ProgramFacts,
    RankProfile,
    StepTimes,
    Synchronization,
)
from trainyard.insight.profiling.verdict.contract import EarlierRun
from trainyard.insight.profiling.verdict.judge import judge_profile, summarize_run

EXTREMES = (0.0, 1e-9, 0.1, 1.0, 50.0, 100.0, 1e6, 1e15)
DEVICES = {"cpu_percent": ("total", "core0"), "io_wait_percent": ("total",)}


def strange_profile(seed: int) -> JobProfile:
    random = np.random.default_rng(seed)
    hosts = [f"algo-{number + 1}" for number in range(random.integers(1, 3))]
    hardware = {host: strange_hardware(random) for host in hosts}
    ranks = [strange_rank(random, number, hosts[number % len(hosts)]) for number in range(random.integers(0, 4))]
    profile = job(float(random.choice([0, 1, 100, 1e5])), hardware, *ranks, is_running=bool(random.integers(2)))
    price = None if random.integers(2) else float(random.choice(EXTREMES))
    gpus = ("NVIDIA A10G",) * int(random.integers(0, 3))
    cores = None if random.integers(2) else float(random.choice([0.1, 1, 64]))
    facts = InstanceFacts("ml.x", cores, None if random.integers(2) else 10**9, gpus, price)
    return replace(profile, instances=dict.fromkeys(hosts, facts) if random.integers(4) else {})


def strange_hardware(random: np.random.Generator) -> HardwareSamples:
    count = int(random.choice([0, 1, 2, 30]))
    times = START_US + np.sort(random.integers(0, 10**8, count))
    series = {}
    for metric in HardwareMetric:
        if random.integers(3):
            for device in DEVICES.get(metric.value, ("gpu0", "gpu1") if metric.value.startswith("gpu") else ("",)):
                # The agent takes the samples, so percentages are such; what they are of may be anything.
                known = [each for each in EXTREMES if each <= 100] if "percent" in metric.value else EXTREMES
                values = random.choice(np.array([*known, np.nan]), count)
                series[HardwareSeries(metric, device)] = np.full(count, np.nan) if random.integers(5) == 0 else values
    return HardwareSamples(times, series)


def strange_rank(random: np.random.Generator, number: int, host: str) -> RankProfile:
    count = int(random.choice([0, 1, 6, 40]))
    durations = random.choice([0, 1, 1000, 10**6, 10**9], count)
    ends = START_US + np.cumsum(durations)
    phases = random.dirichlet(np.full(len(StepPhase), 0.2), count) * durations[:, None] / 1e6
    modes = [Mode.TRAIN if random.integers(5) else Mode.EVAL for _ in range(count)]
    steps = StepTimes(np.arange(count), random.choice([1, 50, 2**32 - 1], count), modes, ends - durations, ends, phases)
    return RankProfile(f"worker_{number}", host, number, steps, strange_program(random))


def strange_program(random: np.random.Generator) -> ProgramFacts:
    def maybe(*values: float) -> float | None:
        return None if random.integers(3) == 0 else float(random.choice(values))

    samples = tuple(float(each) for each in random.choice(EXTREMES, random.integers(0, 20)))
    loader = LoaderFacts("x", int(random.choice([0, 1, 8, 10**6])), False, None, int(random.integers(0, 2)), samples)
    line = HotLine(StepPhase(int(random.integers(8))), "", "", 0, "", int(random.choice([0, 1, 10**9])))
    threads = maybe(0, 1, 10**6)
    parameters = maybe(0, 1, 1e12)
    return ProgramFacts(
        framework=str(random.choice(["", "torch"])),
        device=str(random.choice(["", "cpu", "cuda", "mps"])),
        precision=str(random.choice(["", "float32"])),
        threads=None if threads is None else int(threads),
        parameters=None if parameters is None else int(parameters),
        samples_per_step=maybe(*EXTREMES),
        loaders=(loader,) * int(random.integers(0, 3)),
        hot_lines=(line,) * int(random.integers(0, 3)),
        stack_samples=int(random.choice([0, 5, 100])),
        memory_holders=(MemoryHolder("x", 0),),
        synchronizations=(Synchronization("item", float(random.choice(EXTREMES)), float(random.choice(EXTREMES))),),
    )


@pytest.mark.parametrize("seeds", [range(first, first + 100) for first in range(0, 600, 100)])
def test_strange_profiles_have_a_verdict(seeds: range) -> None:
    for seed in seeds:
        profile = strange_profile(seed)
        earlier = [EarlierRun("before", START_US, step_s, {}) for step_s in (0.0, 1e-9, 1.0, 1e9)]
        larger = InstanceFacts("ml.y", 64, 10**12, price_per_hour=0.0)
        verdict = judge_profile(profile, earlier=earlier, instance_types={"ml.y": larger, "ml.z": InstanceFacts()})
        assert verdict.summary
        run = summarize_run(profile)
        for value in (verdict, run) if run is not None else (verdict,):
            json.dumps(to_plain(value), allow_nan=False)
        for bottleneck in (verdict.bottleneck, *verdict.others):
            assert bottleneck is None or 0 <= bottleneck.share <= 1, bottleneck
            assert bottleneck is None or bottleneck.max_speedup is None or bottleneck.max_speedup >= 1, bottleneck
