"""Profiles of jobs with one fault each, made of the parts in tests/profiles.py."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tests.profiles import COMPUTING, cpu_hardware, gpu_hardware, job, loader, rank, step_times
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import HotLine, JobProfile, LoaderFacts

SECONDS = 120.0


def shares(phase: StepPhase, share: float) -> Mapping[StepPhase, float]:
    """Return the shares of a step of which one phase takes so much, and the others as in a healthy training."""
    rest = {each: part for each, part in COMPUTING.items() if each is not phase}
    total = sum(rest.values())
    return {**{each: part / total * (1 - share) for each, part in rest.items()}, phase: share}


def cpu_job(
    phase: StepPhase = StepPhase.FORWARD,
    share: float = 0.32,
    *,
    step_s: ArrayLike = 0.2,
    loaders: Sequence[LoaderFacts] = (),
    facts: Mapping[str, Any] | None = None,
    seconds: float = SECONDS,
    cores: int = 2,
    added_s: Mapping[StepPhase, ArrayLike] | None = None,
    is_running: bool = False,
    **hardware: Any,
) -> JobProfile:
    """Return a training on CPUs in which a phase takes this share of the step."""
    steps = step_times(seconds, step_s=step_s, shares=shares(phase, share), added_s=added_s)
    ranks = rank(steps, loaders=loaders, **(facts or {}))
    return job(seconds, cpu_hardware(seconds, cores=cores, **hardware), ranks, cores=cores, is_running=is_running)


def gpu_job(
    phase: StepPhase = StepPhase.FORWARD,
    share: float = 0.32,
    *,
    step_s: float = 0.2,
    gpu_busy: ArrayLike = 96.0,
    gpu_memory: ArrayLike = 78.0,
    loaders: Sequence[LoaderFacts] = (loader(3, is_pinning=True),),
    facts: Mapping[str, Any] | None = None,
    seconds: float = SECONDS,
    gpus: int = 1,
    **hardware: Any,
) -> JobProfile:
    """Return a training on a GPU in which a phase takes this share of the step."""
    steps = step_times(seconds, step_s=step_s, shares=shares(phase, share), begin_s=20)
    on_gpu = rank(steps, loaders=loaders, device="cuda", threads=4, **(facts or {}))
    samples = gpu_hardware(seconds, gpus=gpus, gpu_busy=gpu_busy, gpu_memory=gpu_memory, **hardware)
    return job(seconds, samples, on_gpu, cores=4, gpus=gpus)


def hot_line(phase: StepPhase, samples: int, called: str = "math.log(value)") -> HotLine:
    return HotLine(phase, "entropy", "/code/train.py", 20, called, samples)


def ranks_job(*phases: Mapping[StepPhase, float], step_s: float = 0.2, seconds: float = SECONDS) -> JobProfile:
    """Return a training of as many ranks on one host, with the shares of the phases of each."""
    ranks = [
        rank(step_times(seconds, step_s=step_s, shares=each, noise=0.01, seed=number), number=number, threads=1)
        for number, each in enumerate(phases)
    ]
    return job(seconds, cpu_hardware(seconds, cores=len(phases)), *ranks, cores=len(phases))


def with_facts(profile: JobProfile, **facts: Any) -> JobProfile:
    """Return the profile with other facts about the programs of all ranks."""
    ranks = [replace(each, program=replace(each.program, **facts)) for each in profile.ranks]
    return replace(profile, ranks=ranks)


def every(count: int, number: int, seconds: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return seconds for each of so many steps: some in every `number` of them."""
    values = np.zeros(count)
    values[number - 1 :: number] = seconds
    return values
