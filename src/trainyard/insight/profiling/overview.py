"""A profile in a few figures: where the steps of each rank spend their time, and the latest value of each series."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.profiles.contract import HardwareSeries, StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import JobProfile, RankProfile


@dataclass(frozen=True, slots=True)
class RankPhases:
    """The training steps of a rank, or all of them if it does not train. `phases_s` has the mean seconds of a step."""

    worker: str
    host: str
    steps: int
    step_s: float
    phases_s: dict[StepPhase, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeriesOverview:
    """One series of one instance: its latest value, when that was, and the mean of all."""

    host: str
    series: HardwareSeries
    at_us: int
    value: float
    mean: float


def list_phases(profile: JobProfile) -> Sequence[RankPhases]:
    """Return the phases of each rank that has steps."""
    return [_phases(rank) for rank in profile.ranks if len(rank.steps)]


def list_series(profile: JobProfile) -> Sequence[SeriesOverview]:
    """Return each series with at least one value, by instance and name."""
    found = []
    for host, samples in sorted(profile.hardware.items()):
        for series, values in sorted(samples.series.items()):
            known = np.flatnonzero(np.isfinite(values))
            if len(known):
                last = known[-1]
                mean = float(values[known].mean())
                found.append(SeriesOverview(host, series, int(samples.times_us[last]), float(values[last]), mean))
    return found


def _phases(rank: RankProfile) -> RankPhases:
    steps = rank.steps
    wanted = np.array([mode is Mode.TRAIN for mode in steps.modes], np.bool_)
    if not wanted.any():
        wanted[:] = True
    count = int(steps.counts[wanted].sum())
    seconds = steps.phases_s[wanted].sum(axis=0) / count
    return RankPhases(
        worker=rank.name,
        host=rank.host,
        steps=count,
        step_s=float(seconds.sum()),
        phases_s={phase: float(seconds[phase]) for phase in StepPhase},
    )
