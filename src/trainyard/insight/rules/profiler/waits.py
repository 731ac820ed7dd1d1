"""Why a program waits for its data: whether the CPU prepares it too slowly, or the disk or network delivers it so."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.insight.profiling.contract import JobProfile, Numbers, ProgramFacts
from trainyard.insight.rules.profiler.robust_statistics import mean
from trainyard.insight.rules.profiler.training_samples import TOTAL, TrainingSamples
from trainyard.insight.rules.profiler.training_steps import training_steps

# Of a core: a thread that computes takes more, one that reads takes less.
_COMPUTING_CORES = 0.85
_READING_CORES = 0.5
# What each further thread of a computation on the CPU uses of its core.
_THREAD_USE = 0.75

Flags = NDArray[np.bool_]


class WaitCause(StrEnum):
    CPU = "cpu"
    IO = "io"


@dataclass(frozen=True, slots=True)
class DataWait:
    """How long a rank waits for data. `share` is of its step time, from 0 to 1; the rest takes `computing_cores`."""

    share: float
    worker: str
    steps: int
    step_s: float
    computing_cores: float


def longest_wait(profile: JobProfile, host: str) -> DataWait | None:
    """Return the data wait of the rank of a host that waits most; None if no steps are known."""
    waits = [
        DataWait(
            steps.share(StepPhase.DATA_WAIT),
            steps.rank.name,
            steps.steps,
            steps.step_s,
            _computing_cores(steps.rank.program),
        )
        for steps in training_steps(profile, host=host)
    ]
    return max(waits, key=lambda wait: wait.share, default=None)


def speedup(share: float) -> float:
    """Return how many times faster something is at most without a share of its time."""
    return 1 / (1 - min(max(share, 0.0), 0.99))


def idle_gpus(samples: TrainingSamples, *, threshold: float) -> Flags | None:
    """Return in which samples a GPU that the program uses was under the threshold; None if it uses none."""
    gpus = list(samples.used_gpus.values())
    return np.logical_or.reduce([each < threshold for each in gpus]) if gpus else None


def busy_cpu(samples: TrainingSamples, *, threshold: float) -> Flags:
    """Return in which samples the CPU may have been what others waited for.

    All cores were over the threshold; or one of them was, and the job itself used about a core, so that this may have
    been a thread of it that everything else waits for.
    """
    total = samples.one(HardwareMetric.CPU_PERCENT, TOTAL)
    busy = np.zeros(len(samples), dtype=np.bool_) if total is None else total > threshold
    cores = [values for name, values in samples.of(HardwareMetric.CPU_PERCENT).items() if name != TOTAL]
    used = samples.job_cores
    if cores:
        hot = np.logical_or.reduce([each > threshold for each in cores])
        busy = busy | (hot if used is None else hot & (used > _COMPUTING_CORES))
    job = samples.one(HardwareMetric.JOB_CPU_PERCENT)
    return busy if job is None else busy | (job > threshold)


def stalled_io(samples: TrainingSamples, *, threshold: float) -> Flags:
    """Return in which samples a core waited for a disk for so many percent of the time, or programs did."""
    waits = list(samples.of(HardwareMetric.IO_WAIT_PERCENT).values())
    pressure = samples.one(HardwareMetric.PRESSURE_SOME_PERCENT, "io")
    waits += [] if pressure is None else [pressure]
    stalled = [each > threshold for each in waits]
    return np.logical_or.reduce(stalled) if stalled else np.zeros(len(samples), dtype=np.bool_)


def cause_of(samples: TrainingSamples, wait: DataWait, *, io_threshold: float) -> WaitCause:
    """Return why a rank waits for data.

    It is I/O if programs were seen to wait for a disk for about as long, or if the job uses too little CPU for its
    waits to be computation.
    """
    stalled = float(stalled_io(samples, threshold=io_threshold).mean())
    if stalled > wait.share / 2:
        return WaitCause.IO
    used = mean_cores(samples)
    if math.isnan(used) or wait.share <= 0:
        return WaitCause.CPU
    while_waiting = (used - (1 - wait.share) * wait.computing_cores) / wait.share
    return WaitCause.IO if while_waiting < _READING_CORES else WaitCause.CPU


def mean_cores(samples: TrainingSamples) -> float:
    """Return how many cores the job uses on average; NaN if that is not known."""
    used: Numbers | None = samples.job_cores
    return math.nan if used is None else mean(used)


def describe_cores(samples: TrainingSamples) -> str:
    """Say how many cores the job uses, as a part of a sentence."""
    used = mean_cores(samples)
    return (
        "the CPU that the job uses is not known"
        if math.isnan(used)
        else f"the job uses {used:.1f} of {samples.cores:g} cores"
    )


def _computing_cores(program: ProgramFacts) -> float:
    """Return how many cores the rest of a step takes: that of the training thread, and those of its threads."""
    threads = program.threads if program.device == "cpu" and program.threads is not None else 1
    return 1 + _THREAD_USE * (max(threads, 1) - 1)
