"""GPUs and steps that wait for disks or the network."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.wording import percent
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding, ProfilerRule
from trainyard.insight.rules.profiler.patience import PATIENCE, PATIENCE_S, SCAN_INTERVAL, Patience
from trainyard.insight.rules.profiler.robust_statistics import mean, number_or_none
from trainyard.insight.rules.profiler.training_samples import TrainingSamples, training_samples
from trainyard.insight.rules.profiler.waits import (
    DataWait,
    Flags,
    WaitCause,
    cause_of,
    describe_cores,
    idle_gpus,
    longest_wait,
    mean_cores,
    speedup,
    stalled_io,
)

_M = HardwareMetric
# A job without GPUs that uses less of a core than this does nothing but wait.
_IDLE_CORES = 0.5


class IOBottleneck(ProfilerRule):
    """Finds GPUs, and steps, that wait for disks or the network."""

    name = "IOBottleneck"
    parameters = (
        Parameter(
            "threshold",
            float,
            50.0,
            "Which percentage of the training may be lost to reads and writes.",
            advised=20.0,
            at_least=0,
            at_most=100,
        ),
        Parameter("gpu_threshold", float, 10.0, "A GPU under this percentage waits.", at_least=0, at_most=100),
        Parameter(
            "io_threshold",
            float,
            50.0,
            "Programs that wait for a disk for more than this percentage of the time are stalled.",
            at_least=0,
            at_most=100,
        ),
        *(PATIENCE, PATIENCE_S, SCAN_INTERVAL),
    )
    purpose = "Looks for GPUs that are idle, and for steps that wait for data, while programs wait for reads or writes."
    recommendation = (
        "Read fewer and larger files; read ahead in more worker processes; cache the data in memory or on a local "
        "disk; or use a File channel if the data of a FastFile or Pipe channel arrives too slowly."
    )

    def __init__(
        self,
        *,
        threshold: float,
        gpu_threshold: float,
        io_threshold: float,
        patience: int,
        patience_s: float,
        scan_interval_us: int,  # noqa: ARG002 - AWS's
    ) -> None:
        self._threshold, self._gpu, self._io = threshold, gpu_threshold, io_threshold
        self._patience = Patience(patience, patience_s)

    def check(self, profile: JobProfile) -> ProfilerCheck:
        findings: list[ProfilerFinding] = []
        details: dict[str, Mapping[str, Any]] = {}
        undecided, points, violations = "", 0, 0
        for samples in training_samples(profile):
            wait = longest_wait(profile, samples.host)
            undecided = self._patience.missing(
                profile, len(samples), seconds=samples.seconds, steps=wait.steps if wait is not None else 0
            )
            if undecided:
                continue
            lost = self._find_stalls(samples, has_steps=wait is not None)
            points += len(samples)
            violations += int(lost.sum())
            waited = self._waited_for_io(samples, wait)
            details[samples.host] = {
                "stalled_percent": 100 * float(lost.mean()),
                "data_wait_percent": 100 * wait.share if wait is not None else None,
                "data_wait_for_io_percent": 100 * waited,
                "read_bytes_s": _mean_rate(samples, _M.JOB_READ_BYTES_S),
                "received_bytes_s": _mean_rate(samples, _M.NETWORK_RECEIVED_BYTES_S),
                "cores_used": number_or_none(mean_cores(samples)),
                "max_speedup": speedup(max(float(lost.mean()), waited)),
            }
            if 100 * waited > self._threshold and wait is not None:
                findings.append(self._waiting_steps(samples, wait))
            elif 100 * lost.mean() > self._threshold:
                findings.append(self._stalled_job(samples, float(lost.mean())))
        return ProfilerCheck(findings, points, violations, details, "" if points else undecided or _NOTHING)

    def _find_stalls(self, samples: TrainingSamples, *, has_steps: bool) -> Flags:
        """Return in which samples a GPU waited while programs were stalled, or a job without GPUs did nothing else."""
        stalled = stalled_io(samples, threshold=self._io)
        idle = idle_gpus(samples, threshold=self._gpu)
        if idle is not None:
            return stalled & idle
        used = samples.job_cores
        if has_steps or used is None:
            return np.zeros(len(samples), dtype=np.bool_)
        return stalled & (used < _IDLE_CORES)

    def _waited_for_io(self, samples: TrainingSamples, wait: DataWait | None) -> float:
        """Return the share of the step time in which a rank waits for data that arrives too slowly."""
        is_for_io = wait is not None and cause_of(samples, wait, io_threshold=self._io) is WaitCause.IO
        return wait.share if wait is not None and is_for_io else 0.0

    def _waiting_steps(self, samples: TrainingSamples, wait: DataWait) -> ProfilerFinding:
        return ProfilerFinding(
            f"{wait.worker} on {samples.host} waits for data in {percent(wait.share)} of its steps' time (limit "
            f"{self._threshold:g} %) because reads are slow: {describe_cores(samples)}; it "
            f"reads {_megabytes(samples, _M.JOB_READ_BYTES_S)} from disks and receives "
            f"{_megabytes(samples, _M.NETWORK_RECEIVED_BYTES_S)}. Without the wait, steps would be up to "
            f"{speedup(wait.share):.1f} times as fast.",
            host=samples.host,
            worker=wait.worker,
            value=100 * wait.share,
            threshold=self._threshold,
        )

    def _stalled_job(self, samples: TrainingSamples, share: float) -> ProfilerFinding:
        waiting = f"a GPU was less than {self._gpu:g} % busy" if samples.used_gpus else "the job computed nothing"
        return ProfilerFinding(
            f"In {percent(share)} of the samples of {samples.host} (limit {self._threshold:g} %), {waiting} while "
            f"programs waited for a disk; the job reads {_megabytes(samples, _M.JOB_READ_BYTES_S)}. Without the waits, "
            f"it would be up to {speedup(share):.1f} times as fast.",
            host=samples.host,
            value=100 * share,
            threshold=self._threshold,
        )


def _mean_rate(samples: TrainingSamples, metric: HardwareMetric) -> float | None:
    values = samples.one(metric)
    return None if values is None else number_or_none(mean(values))


def _megabytes(samples: TrainingSamples, metric: HardwareMetric) -> str:
    rate = _mean_rate(samples, metric)
    return "an unknown amount" if rate is None else f"{rate / 1e6:.1f} MB/s"


_NOTHING = "There are no samples of the training."
