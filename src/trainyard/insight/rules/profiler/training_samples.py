"""The samples of each host that rules judge: those taken while it trained, not while the program started or ended."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.profiling.contract import HardwareSamples, JobProfile, Numbers, RankProfile, Times

TOTAL = "total"
# Use of more than this is use by a program; a driver shows a percent now and then.
GPU_IN_USE_PERCENT = 2.0


@dataclass(frozen=True, slots=True)
class TrainingSamples:
    """Samples of one host in the time in which it trained.

    `cores` are those that the job may use, NaN if they are not known. `times_us` may have gaps, during which the
    machine was suspended.
    """

    host: str
    cores: float
    times_us: Times
    chosen: NDArray[np.bool_]
    samples: HardwareSamples

    def __len__(self) -> int:
        return len(self.times_us)

    def of(self, metric: HardwareMetric) -> Mapping[str, Numbers]:
        """Return the values of a metric by device, without devices that have none, in the order of their numbers."""
        found = {name: values[self.chosen] for name, values in self.samples.of(metric).items()}
        known = {name: values for name, values in found.items() if np.isfinite(values).any()}
        return dict(sorted(known.items(), key=lambda item: (len(item[0]), item[0])))

    def one(self, metric: HardwareMetric, device: str = "") -> Numbers | None:
        """Return the values of one series; None if it has none."""
        return self.of(metric).get(device)

    @property
    def interval_s(self) -> float:
        """The usual time from one sample to the next."""
        return float(np.median(np.diff(self.times_us))) / 1e6 if len(self) > 1 else 0.0

    @property
    def seconds(self) -> float:
        """How long the samples cover, without gaps."""
        return self.interval_s * len(self)

    @property
    def used_gpus(self) -> Mapping[str, Numbers]:
        """The utilisation of each GPU that the program has used at all."""
        gpus = self.of(HardwareMetric.GPU_PERCENT)
        return {name: each for name, each in gpus.items() if np.nanmax(each) > GPU_IN_USE_PERCENT}

    @property
    def job_cores(self) -> Numbers | None:
        """How many cores the processes of the job use; of all programs on the machine if those are not known."""
        own = self.one(HardwareMetric.JOB_CPU_PERCENT)
        used = self.one(HardwareMetric.CPU_PERCENT, TOTAL) if own is None else own
        return None if used is None or math.isnan(self.cores) else used / 100 * self.cores


def training_samples(profile: JobProfile, *, window: int = 0) -> Sequence[TrainingSamples]:
    """Return the samples of each host that has any. With a `window`, only so many of the latest."""
    found = []
    for host, samples in sorted(profile.hardware.items()):
        chosen = _training_rows(profile, host, samples)
        if window:
            rows = np.flatnonzero(chosen)
            chosen[rows[:-window]] = False
        if chosen.any():
            found.append(
                TrainingSamples(host, instance_cores(profile, host), samples.times_us[chosen], chosen, samples)
            )
    return found


def latest_us(profile: JobProfile) -> int:
    """Return the latest time that the profile tells of."""
    times = [profile.started_us, *([profile.ended_us] if profile.ended_us is not None else [])]
    times += [int(samples.times_us.max()) for samples in profile.hardware.values() if len(samples)]
    times += [int(rank.steps.ends_us.max()) for rank in profile.ranks if len(rank.steps)]
    return max(times)


def _training_rows(profile: JobProfile, host: str, samples: HardwareSamples) -> NDArray[np.bool_]:
    times = samples.times_us
    with_steps = [rank for rank in profile.ranks if len(rank.steps)]
    ranks = [rank for rank in with_steps if rank.host == host] or with_steps
    if ranks:
        started_us = min(_first_usual_us(rank) for rank in ranks)
        ended_us = max(int(rank.steps.ends_us.max()) for rank in ranks)
        chosen: NDArray[np.bool_] = (times >= started_us) & (times <= ended_us)
        return chosen
    gpus = samples.of(HardwareMetric.GPU_PERCENT)
    in_use = [np.nan_to_num(values) > GPU_IN_USE_PERCENT for values in gpus.values()]
    used = np.flatnonzero(np.logical_or.reduce(in_use)) if in_use else np.array([], dtype=np.int64)
    chosen = np.ones(len(times), dtype=np.bool_)
    if len(used):
        chosen[: used[0]] = False
    return chosen


def _first_usual_us(rank: RankProfile) -> int:
    """Return when the second step began: the first one compiles, allocates and starts workers."""
    return int(rank.steps.starts_us[1 if len(rank.steps) > 1 else 0])


def instance_cores(profile: JobProfile, host: str) -> float:
    """Return the cores that the job may use on a host; NaN if that is not known."""
    facts = profile.instances.get(host)
    if facts is not None and facts.cores:
        return facts.cores
    samples = profile.hardware.get(host)
    devices = [name for name in samples.of(HardwareMetric.CPU_PERCENT) if name != TOTAL] if samples else []
    return float(len(devices)) if devices else math.nan
