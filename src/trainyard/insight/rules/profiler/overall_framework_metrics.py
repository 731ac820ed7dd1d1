"""How the time of steps divides."""

from typing import Any

import numpy as np

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import JobProfile, Numbers, RankProfile
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerRule
from trainyard.insight.rules.profiler.patience import SCAN_INTERVAL
from trainyard.insight.rules.profiler.training_steps import is_mode, phases_of

_MODES = (Mode.TRAIN, Mode.EVAL, Mode.PREDICT)


class OverallFrameworkMetrics(ProfilerRule):
    """Finds nothing, but sums up how the time of the steps of each rank divides into phases."""

    name = "OverallFrameworkMetrics"
    parameters = (SCAN_INTERVAL,)
    purpose = "Sums up the steps of each rank: how long they take, and in which phases."
    recommendation = "This rule never triggers; its figures are for the report."

    def __init__(self, *, scan_interval_us: int) -> None:
        """The interval is AWS's."""

    def check(self, profile: JobProfile) -> ProfilerCheck:
        details: dict[str, Any] = {}
        points = 0
        for rank in profile.ranks:
            phases = phases_of(rank)
            modes: dict[str, Any] = {}
            for mode in _MODES:
                rows = np.flatnonzero(is_mode(rank, mode) & (rank.steps.counts > 0))
                if len(rows):
                    modes[mode] = _summarize(rank, phases, rows)
                    points += modes[mode]["steps"]
            details[rank.name] = {"host": rank.host, "framework": rank.program.framework, "modes": modes}
        return ProfilerCheck((), points, 0, details, "" if points else "No steps are known.")


def _summarize(rank: RankProfile, phases: Numbers, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> dict[str, Any]:
    counts = rank.steps.counts[rows]
    each = phases[rows].sum(axis=1) / counts
    low, p50, p95, p99, high = (float(value) for value in np.percentile(each, (0, 50, 95, 99, 100)))
    by_phase = phases[rows].sum(axis=0)
    total = float(by_phase.sum())
    return {
        "steps": int(counts.sum()),
        "seconds": total,
        "step_s": {
            "max": high,
            "p99": p99,
            "p95": p95,
            "p50": p50,
            "min": low,
            "mean": total / float(counts.sum()),
        },
        "phases_s": {phase.name.lower(): float(by_phase[phase]) for phase in StepPhase},
        "phase_shares": {phase.name.lower(): float(by_phase[phase]) / total if total else 0.0 for phase in StepPhase},
    }
