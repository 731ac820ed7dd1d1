"""GPUs and steps that wait for the CPU."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.wording import percent
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding, ProfilerRule
from trainyard.insight.rules.profiler.patience import PATIENCE, PATIENCE_S, SCAN_INTERVAL, Patience
from trainyard.insight.rules.profiler.robust_statistics import number_or_none
from trainyard.insight.rules.profiler.training_samples import TrainingSamples, training_samples
from trainyard.insight.rules.profiler.training_steps import training_steps
from trainyard.insight.rules.profiler.waits import (
    DataWait,
    Flags,
    WaitCause,
    busy_cpu,
    cause_of,
    describe_cores,
    idle_gpus,
    longest_wait,
    mean_cores,
    speedup,
    stalled_io,
)

# Programs that wait for a disk are the concern of IOBottleneck.
_IO_PERCENT = 50.0


class CPUBottleneck(ProfilerRule):
    """Finds GPUs, and steps, that wait for the CPU."""

    name = "CPUBottleneck"
    parameters = (
        Parameter(
            "threshold",
            float,
            50.0,
            "Which percentage of the training may be lost to the CPU.",
            advised=20.0,
            at_least=0,
            at_most=100,
        ),
        Parameter("gpu_threshold", float, 10.0, "A GPU under this percentage waits.", at_least=0, at_most=100),
        Parameter("cpu_threshold", float, 90.0, "A core over this percentage is busy.", at_least=0, at_most=100),
        *(PATIENCE, PATIENCE_S, SCAN_INTERVAL),
    )
    purpose = "Looks for GPUs that are idle, and for steps that wait for data, while the CPU is busy."
    recommendation = (
        "Prepare data in more worker processes, or prepare it once and store it; move augmentation to the GPU; speed "
        "up the Python code between operations; or choose an instance type with more cores per GPU."
    )

    def __init__(
        self,
        *,
        threshold: float,
        gpu_threshold: float,
        cpu_threshold: float,
        patience: int,
        patience_s: float,
        scan_interval_us: int,  # noqa: ARG002 - AWS's
    ) -> None:
        self._threshold, self._gpu, self._cpu = threshold, gpu_threshold, cpu_threshold
        self._patience = Patience(patience, patience_s)

    def check(self, profile: JobProfile) -> ProfilerCheck:
        findings: list[ProfilerFinding] = []
        details: dict[str, Mapping[str, Any]] = {}
        undecided, points, violations = "", 0, 0
        for samples in training_samples(profile):
            wait = longest_wait(profile, samples.host)
            idle = idle_gpus(samples, threshold=self._gpu)
            undecided = self._patience.missing(
                profile, len(samples), seconds=samples.seconds, steps=wait.steps if wait is not None else 0
            )
            if undecided or (wait is None and idle is None):
                continue
            busy = busy_cpu(samples, threshold=self._cpu) & ~stalled_io(samples, threshold=_IO_PERCENT)
            lost = np.zeros(len(samples), dtype=np.bool_) if idle is None else idle & busy
            points += len(samples)
            violations += int(lost.sum())
            waited = self._waited_for_cpu(samples, wait)
            idled = max(float(lost.mean()), _idle_share(profile, samples, busy))
            details[samples.host] = {
                "gpu_waits_percent": 100 * idled,
                "data_wait_percent": 100 * wait.share if wait is not None else None,
                "data_wait_for_cpu_percent": 100 * waited,
                "busy_cpu_percent": 100 * float(busy.mean()),
                "cores_used": number_or_none(mean_cores(samples)),
                "max_speedup": speedup(max(idled, waited)),
            }
            if 100 * waited > self._threshold and wait is not None:
                findings.append(self._waiting_steps(samples, wait))
            elif 100 * idled > self._threshold:
                findings.append(self._waiting_gpus(samples, idled))
        return ProfilerCheck(findings, points, violations, details, "" if points else undecided or _NOTHING)

    def _waited_for_cpu(self, samples: TrainingSamples, wait: DataWait | None) -> float:
        """Return the share of the step time in which a rank waits for data that the CPU prepares too slowly."""
        is_for_cpu = wait is not None and cause_of(samples, wait, io_threshold=_IO_PERCENT) is WaitCause.CPU
        return wait.share if wait is not None and is_for_cpu else 0.0

    def _waiting_steps(self, samples: TrainingSamples, wait: DataWait) -> ProfilerFinding:
        return ProfilerFinding(
            f"{wait.worker} on {samples.host} waits for data in {percent(wait.share)} of its steps' time (limit "
            f"{self._threshold:g} %) because the CPU prepares it too slowly; {describe_cores(samples)}. "
            f"Without the wait, steps would be up to {speedup(wait.share):.1f} times as fast.",
            host=samples.host,
            worker=wait.worker,
            value=100 * wait.share,
            threshold=self._threshold,
        )

    def _waiting_gpus(self, samples: TrainingSamples, share: float) -> ProfilerFinding:
        return ProfilerFinding(
            f"In {percent(share)} of the time (limit {self._threshold:g} %), a GPU of {samples.host} is idle while the "
            f"CPU is busy; {describe_cores(samples)}. If the GPU did not wait, the training would be up to "
            f"{speedup(share):.1f} times as fast.",
            host=samples.host,
            value=100 * share,
            threshold=self._threshold,
        )


def _idle_share(profile: JobProfile, samples: TrainingSamples, busy: Flags) -> float:
    """Return the share of the time in which the GPUs are idle, on average, while the CPU is busy.

    A GPU that waits for the same part of each step is idle in no sample, but in that part of all of them. What ranks
    exchange and write is not counted: the CPU may be busy with it.
    """
    gpus = list(samples.used_gpus.values())
    if not gpus:
        return 0.0
    idle = 1 - np.clip(np.mean(np.nan_to_num(gpus, nan=100.0), axis=0), 0.0, 100.0) / 100
    steps = training_steps(profile, host=samples.host)
    elsewhere = max((each.share(StepPhase.COMMUNICATION, StepPhase.CHECKPOINT) for each in steps), default=0.0)
    return max(0.0, float((idle * busy).mean()) - elsewhere)


_NOTHING = "There are neither samples of a GPU in use nor steps, so nothing is seen to wait for the CPU."
