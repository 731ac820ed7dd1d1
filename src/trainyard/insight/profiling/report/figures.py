"""What a report says in figures, computed once for the page, the notebook and the embedded data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import JobProfile, Numbers, RankProfile, StepTimes
from trainyard.insight.profiling.report.downsampling import weighted_quantiles
from trainyard.insight.profiling.report.units import unit_of

# A step counts as an outlier if it takes this many times the median.
OUTLIER_FACTOR = 2.0
# A counter that only grows, and bits.
WITHOUT_DISTRIBUTION = (HardwareMetric.GPU_ENERGY_JOULES, HardwareMetric.GPU_THROTTLE_REASONS)
# In a list of the slowest steps.
SLOWEST = 10


@dataclass(frozen=True, slots=True)
class JobTimes:
    """The parts of a job's time. Without steps, `loop_started_us` is None, and all of it is initialization."""

    started_us: int
    ended_us: int
    loop_started_us: int | None = None
    loop_ended_us: int | None = None
    is_running: bool = False

    @property
    def duration_s(self) -> float:
        return (self.ended_us - self.started_us) / 1e6

    @property
    def initialization_s(self) -> float | None:
        return None if self.loop_started_us is None else (self.loop_started_us - self.started_us) / 1e6

    @property
    def loop_s(self) -> float | None:
        if self.loop_started_us is None or self.loop_ended_us is None:
            return None
        return (self.loop_ended_us - self.loop_started_us) / 1e6

    @property
    def finalization_s(self) -> float | None:
        """The time after the last step; None while the program runs, as more steps may come."""
        if self.loop_ended_us is None or self.is_running:
            return None
        return (self.ended_us - self.loop_ended_us) / 1e6

    def share_of(self, seconds: float | None) -> float | None:
        return None if seconds is None or self.duration_s <= 0 else seconds / self.duration_s


@dataclass(frozen=True, slots=True)
class SeriesUsage:
    """How one series of the hardware of a host was distributed."""

    host: str
    metric: HardwareMetric
    device: str
    unit: str
    samples: int
    mean: float
    maximum: float
    p99: float
    p95: float
    p90: float
    p50: float
    p25: float
    p75: float
    p5: float
    minimum: float


@dataclass(frozen=True, slots=True)
class StepUsage:
    """How long the steps of a rank took in one mode, in seconds."""

    worker: str
    host: str
    mode: Mode
    steps: int
    total_s: float
    mean_s: float
    maximum_s: float
    p99_s: float
    p95_s: float
    p50_s: float
    minimum_s: float
    outliers: int
    phases_s: Numbers  # of a mean step, by StepPhase


@dataclass(frozen=True, slots=True)
class SlowStep:
    """A step that took much longer than the median, and the phase that most of its extra time was spent on."""

    worker: str
    number: int
    mode: Mode
    started_us: int
    duration_s: float
    median_s: float
    phase: StepPhase


def measure_times(profile: JobProfile, written_us: int) -> JobTimes:
    started, ended = profile.started_us, profile.ended_us if profile.ended_us is not None else written_us
    seen = [rank.steps for rank in profile.ranks if len(rank.steps)]
    if not seen:
        return JobTimes(started, max(started, ended), is_running=profile.ended_us is None)
    first, last = min(int(each.starts_us.min()) for each in seen), max(int(each.ends_us.max()) for each in seen)
    # Steps of a clock that is wrong must not stretch the job.
    first, last = min(max(first, started), ended), max(min(last, ended), started)
    return JobTimes(started, max(started, ended), first, max(first, last), profile.ended_us is None)


def list_usage(profile: JobProfile, *, of_cores: bool = False) -> Sequence[SeriesUsage]:
    """Return the distribution of every series of single cores, or of every other one, that has one and a value."""
    found = []
    for host, samples in sorted(profile.hardware.items()):
        for series, values in sorted(samples.series.items(), key=lambda item: series_order(item[0])):
            if series.metric in WITHOUT_DISTRIBUTION or of_cores != is_core(series.device):
                continue
            if (usage := measure_series(host, series, values)) is not None:
                found.append(usage)
    return found


def is_core(device: str) -> bool:
    return device.startswith("core")


def measure_series(host: str, series: HardwareSeries, values: Numbers) -> SeriesUsage | None:
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    p5, p25, p50, p75, p90, p95, p99 = np.percentile(known, [5, 25, 50, 75, 90, 95, 99]).tolist()
    return SeriesUsage(
        host=host,
        metric=series.metric,
        device=series.device,
        unit=unit_of(series.metric),
        samples=len(known),
        mean=float(known.mean()),
        maximum=float(known.max()),
        minimum=float(known.min()),
        p99=p99,
        p95=p95,
        p90=p90,
        p75=p75,
        p50=p50,
        p25=p25,
        p5=p5,
    )


def series_order(series: HardwareSeries) -> tuple[int, str, int, str]:
    """Return a key that puts metrics in the order of their definition, and core10 behind core9."""
    letters = series.device.rstrip("0123456789")
    number = series.device[len(letters) :]
    return list(HardwareMetric).index(series.metric), letters, int(number[:9] or 0), series.device


def rows_of(steps: StepTimes, mode: Mode) -> NDArray[np.intp]:
    """Return the rows of a mode. Most programs have one mode, and then nothing needs to be compared row by row."""
    count = steps.modes.count(mode)
    if count in (0, len(steps)):
        return np.arange(count)
    return np.flatnonzero(np.array(steps.modes, dtype=np.str_) == mode.value)


def list_step_usage(ranks: Sequence[RankProfile]) -> Sequence[StepUsage]:
    """Return the durations of steps by rank and mode, for modes that have steps."""
    found = []
    for rank in ranks:
        for mode in (Mode.TRAIN, Mode.EVAL, Mode.PREDICT):
            own = rows_of(rank.steps, mode)
            if len(own):
                found.append(_measure_steps(rank, mode, own))
    return found


def _measure_steps(rank: RankProfile, mode: Mode, own: NDArray[np.intp]) -> StepUsage:
    steps = rank.steps
    durations, counts = steps.durations_s[own], np.maximum(steps.counts[own], 1).astype(np.float64)
    p50, p95, p99 = weighted_quantiles(durations, counts, (0.5, 0.95, 0.99))
    total = float((durations * counts).sum())
    return StepUsage(
        worker=rank.name,
        host=rank.host,
        mode=mode,
        steps=int(counts.sum()),
        total_s=total,
        mean_s=total / float(counts.sum()),
        maximum_s=float(durations.max()),
        p99_s=p99,
        p95_s=p95,
        p50_s=p50,
        minimum_s=float(durations.min()),
        outliers=int(counts[durations > OUTLIER_FACTOR * p50].sum()),
        phases_s=(phases_per_step(steps)[own] * counts[:, None]).sum(axis=0) / counts.sum(),
    )


def phases_per_step(steps: StepTimes) -> Numbers:
    """Return the seconds of each phase in a mean step of each row."""
    phases: Numbers = steps.phases_s / np.maximum(steps.counts, 1)[:, None]
    return phases


def list_slow_steps(ranks: Sequence[RankProfile]) -> Sequence[SlowStep]:
    """Return the slowest outliers of all ranks, the slowest first."""
    found = []
    for rank in ranks:
        steps = rank.steps
        durations, phases = steps.durations_s, phases_per_step(steps)
        for mode in (Mode.TRAIN, Mode.EVAL, Mode.PREDICT):
            own = rows_of(steps, mode)
            (median,) = weighted_quantiles(durations[own], steps.counts[own].astype(np.float64), (0.5,))
            slow = own[durations[own] > OUTLIER_FACTOR * median] if len(own) else own
            slow = slow[np.argsort(-durations[slow])][:SLOWEST]
            usual = np.median(phases[own], axis=0) if len(slow) else 0
            found += [
                SlowStep(
                    worker=rank.name,
                    number=int(steps.numbers[row]),
                    mode=mode,
                    started_us=int(steps.starts_us[row]),
                    duration_s=float(durations[row]),
                    median_s=median,
                    phase=StepPhase(int(np.argmax(phases[row] - usual))),
                )
                for row in slow.tolist()
            ]
    return sorted(found, key=lambda step: -step.duration_s)[:SLOWEST]
