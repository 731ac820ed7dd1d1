"""Batches too small for the hardware."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.verdict.wording import percent
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding, ProfilerRule
from trainyard.insight.rules.profiler.patience import PATIENCE, PATIENCE_S, SCAN_INTERVAL, WINDOW, Patience
from trainyard.insight.rules.profiler.robust_statistics import number_or_none, percentile
from trainyard.insight.rules.profiler.training_samples import TOTAL, TrainingSamples, training_samples
from trainyard.insight.rules.profiler.training_steps import TrainingSteps, training_steps

_M = HardwareMetric
# A program that spends more of its time on these would not gain by larger batches.
_OTHER_CAUSES = (StepPhase.DATA_WAIT, StepPhase.COMMUNICATION, StepPhase.CHECKPOINT)
_MAX_OTHER_SHARE = 0.3
# On a CPU, steps this short cannot occupy several threads, and those have little to compute for each operation.
_SHORT_STEP_S, _TINY_STEP_S = 0.02, 0.002


@dataclass(frozen=True, slots=True)
class _Use:
    """What 95 percent of the samples of a device are under."""

    device: str
    cpu: float
    busy: float
    memory: float


class BatchSize(ProfilerRule):
    """Finds hardware that a larger batch would fill: processor, GPU and its memory are all far from their limits."""

    name = "BatchSize"
    parameters = (
        Parameter("cpu_threshold_p95", float, 70.0, "The 95th percentile of CPU use is under this.", at_least=0),
        Parameter("gpu_threshold_p95", float, 70.0, "The 95th percentile of GPU use is under this.", at_least=0),
        Parameter(
            "gpu_memory_threshold_p95", float, 70.0, "The 95th percentile of memory use is under this.", at_least=0
        ),
        *(PATIENCE, WINDOW, PATIENCE_S, SCAN_INTERVAL),
    )
    purpose = "Looks for processors, GPUs and memory that are all far from their limits, because batches are small."
    recommendation = (
        "Use a larger batch, with a learning rate to match; or a smaller instance type, if the model is small."
    )

    def __init__(
        self,
        *,
        cpu_threshold_p95: float,
        gpu_threshold_p95: float,
        gpu_memory_threshold_p95: float,
        patience: int,
        window: int,
        patience_s: float,
        scan_interval_us: int,  # noqa: ARG002 - AWS's
    ) -> None:
        self._cpu, self._gpu, self._memory = cpu_threshold_p95, gpu_threshold_p95, gpu_memory_threshold_p95
        self._patience, self._window = Patience(patience, patience_s), window

    def check(self, profile: JobProfile) -> ProfilerCheck:
        findings, details, undecided, points = [], {}, "", 0
        for samples in training_samples(profile, window=self._window):
            undecided = self._patience.missing(profile, len(samples), seconds=samples.seconds)
            if undecided:
                continue
            other = self._other_cause(profile, samples.host)
            for use in self._uses(profile, samples):
                points += 1
                is_low = use.cpu < self._cpu and use.busy < self._gpu and use.memory < self._memory
                is_low = is_low and (bool(use.device) or _has_short_steps(profile, samples.host))
                details[f"{samples.host} {use.device}".rstrip()] = {
                    "cpu_p95": number_or_none(use.cpu),
                    "busy_p95": number_or_none(use.busy),
                    "memory_p95": number_or_none(use.memory),
                    "other_cause": other,
                }
                if is_low and not other:
                    findings.append(self._finding(samples.host, use))
        return ProfilerCheck(findings, points, len(findings), details, "" if points else undecided or _NOTHING)

    def _uses(self, profile: JobProfile, samples: TrainingSamples) -> list[_Use]:
        job, machine = samples.one(_M.JOB_CPU_PERCENT), samples.one(_M.CPU_PERCENT, TOTAL)
        known = machine if samples.of(_M.GPU_PERCENT) or job is None else job
        if known is None:
            return []
        cpu = percentile(known, 95)
        memory = samples.of(_M.GPU_MEMORY_PERCENT)
        if samples.of(_M.GPU_PERCENT):
            return [
                _Use(gpu, cpu, percentile(busy, 95), percentile(memory[gpu], 95))
                for gpu, busy in samples.used_gpus.items()
                if gpu in memory
            ]
        job_memory = samples.one(_M.JOB_MEMORY_PERCENT)
        if job_memory is None or not _cpu_steps(profile, samples.host):
            return []
        return [_Use("", cpu, cpu, percentile(job_memory, 95))]

    def _other_cause(self, profile: JobProfile, host: str) -> str:
        """Return what the host waits for instead, if that takes a good part of its steps."""
        for steps in training_steps(profile, host=host) or training_steps(profile):
            if steps.share(*_OTHER_CAUSES) > _MAX_OTHER_SHARE:
                longest = max(_OTHER_CAUSES, key=lambda phase: steps.share(phase))
                share = steps.share(longest)
                return f"{longest.name.lower()} takes {percent(share)} of the steps of {steps.rank.name}"
        return ""

    def _finding(self, host: str, use: _Use) -> ProfilerFinding:
        if not use.device:
            return ProfilerFinding(
                f"In 95 % of the samples, {host} used at most {use.cpu:.0f} % of its cores and {use.memory:.0f} % of "
                f"its memory (limits {self._cpu:g} and {self._memory:g} %), and its steps are short: larger batches "
                "would keep the cores busy.",
                host=host,
                value=use.cpu,
                threshold=self._cpu,
            )
        return ProfilerFinding(
            f"In 95 % of the samples, {use.device} of {host} was at most {use.busy:.0f} % busy with at most "
            f"{use.memory:.0f} % of its memory in use, and the CPU at most {use.cpu:.0f} % busy (limits "
            f"{self._gpu:g}, {self._memory:g} and {self._cpu:g} %). If the batch grows until the GPU is busy, samples "
            f"may pass up to {100 / max(use.busy, 1.0):.1f} times as fast.",
            host=host,
            device=use.device,
            value=use.busy,
            threshold=self._gpu,
        )


def _cpu_steps(profile: JobProfile, host: str) -> Sequence[TrainingSteps]:
    """Return the steps of the ranks of a host that compute on its CPU."""
    return [steps for steps in training_steps(profile, host=host) if steps.rank.program.device == "cpu"]


def _has_short_steps(profile: JobProfile, host: str) -> bool:
    """Whether steps on a CPU are too short for threads to share them, or mostly consist of starting operations."""
    return any(
        steps.step_s < _TINY_STEP_S or (steps.step_s < _SHORT_STEP_S and (steps.rank.program.threads or 0) > 1)
        for steps in _cpu_steps(profile, host)
    )


_NOTHING = "There are neither samples of a GPU in use nor steps on a CPU, by which batches could be judged."
