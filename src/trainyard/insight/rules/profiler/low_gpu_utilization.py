"""GPUs that are used too little, or not at all."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.profiling.contract import JobProfile, Numbers
from trainyard.insight.profiling.verdict.wording import percent
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding, ProfilerRule
from trainyard.insight.rules.profiler.patience import PATIENCE, PATIENCE_S, SCAN_INTERVAL, WINDOW, Patience
from trainyard.insight.rules.profiler.robust_statistics import mean, percentile
from trainyard.insight.rules.profiler.training_samples import (
    GPU_IN_USE_PERCENT,
    TrainingSamples,
    training_samples,
)
from trainyard.insight.rules.profiler.training_steps import training_steps


class LowGPUUtilization(ProfilerRule):
    """Finds GPUs that are mostly idle, that pause again and again, or that the program does not use."""

    name = "LowGPUUtilization"
    parameters = (
        Parameter(
            "threshold_p95",
            float,
            70.0,
            "A GPU whose 95th percentile of use is under this is used too little.",
            at_least=0,
            at_most=100,
        ),
        Parameter(
            "threshold_p5",
            float,
            10.0,
            "A GPU that is busier, but whose 5th percentile is under this, pauses.",
            at_least=0,
            at_most=100,
        ),
        *(WINDOW, PATIENCE, PATIENCE_S, SCAN_INTERVAL),
    )
    purpose = "Looks for GPUs that are busy for too little of the time while the job trains."
    recommendation = (
        "Look at what the steps wait for: data, the CPU, other ranks or checkpoints. If they wait for none, use a "
        "larger batch, or a smaller instance type."
    )

    def __init__(
        self,
        *,
        threshold_p95: float,
        threshold_p5: float,
        window: int,
        patience: int,
        patience_s: float,
        scan_interval_us: int,  # noqa: ARG002 - AWS's
    ) -> None:
        self._p95, self._p5, self._window = threshold_p95, threshold_p5, window
        self._patience = Patience(patience, patience_s)

    def check(self, profile: JobProfile) -> ProfilerCheck:
        findings: list[ProfilerFinding] = []
        details: dict[str, Mapping[str, Any]] = {}
        undecided, points = "", 0
        for samples in training_samples(profile, window=self._window):
            undecided = self._patience.missing(profile, len(samples), seconds=samples.seconds)
            gpus = samples.of(HardwareMetric.GPU_PERCENT)
            is_training = any(np.nanmax(each) > GPU_IN_USE_PERCENT for each in gpus.values()) or training_steps(profile)
            if undecided or not is_training:
                continue
            for device, busy in gpus.items():
                points += 1
                details[f"{samples.host} {device}"] = {
                    "p95": percentile(busy, 95),
                    "p5": percentile(busy, 5),
                    "mean": mean(busy),
                    "max_speedup": min(100.0, 100 / max(mean(busy), 1.0)),
                }
                if message := self._judge(device, busy, samples, paid=_price(profile, samples, len(gpus))):
                    findings.append(self._finding(message, samples, device, busy))
        return ProfilerCheck(findings, points, len(findings), details, "" if points else undecided or _NOTHING)

    def _judge(self, device: str, busy: Numbers, samples: TrainingSamples, *, paid: str) -> str:
        """Return what is wrong with the use of a GPU; empty if nothing is."""
        p95, p5, average = percentile(busy, 95), percentile(busy, 5), mean(busy)
        where = f"{device} of {samples.host}"
        if np.nanmax(busy) <= GPU_IN_USE_PERCENT:
            return f"The program does not use {where} while it trains{paid}."
        if p95 < self._p95:
            return (
                f"{where} is used too little: it is less than {math.ceil(p95)} % busy in 95 % of the samples (limit "
                f"{self._p95:g} %), and {average:.0f} % on average{paid}."
            )
        if p5 < self._p5:
            idle = float((busy[np.isfinite(busy)] < self._p5).mean())
            return (
                f"{where} pauses again and again: it is less than {self._p5:g} % busy in {percent(idle)} of the "
                f"samples (limit 5 %), though up to {p95:.0f} % in others; {average:.0f} % on average{paid}."
            )
        return ""

    def _finding(self, message: str, samples: TrainingSamples, device: str, busy: Numbers) -> ProfilerFinding:
        p95 = percentile(busy, 95)
        is_low = p95 < self._p95
        return ProfilerFinding(
            message,
            host=samples.host,
            device=device,
            value=p95 if is_low else percentile(busy, 5),
            threshold=self._p95 if is_low else self._p5,
            started_us=int(samples.times_us[0]),
            ended_us=int(samples.times_us[-1]),
        )


def _price(profile: JobProfile, samples: TrainingSamples, gpus: int) -> str:
    """Return what an hour of the GPU costs, as a part of a sentence; empty if unknown."""
    facts = profile.instances.get(samples.host)
    if facts is None or not facts.price_per_hour:
        return ""
    return f"; it costs {facts.price_per_hour / gpus:.2f} {facts.currency} an hour".rstrip()


_NOTHING = "There are no samples of a GPU in use."
