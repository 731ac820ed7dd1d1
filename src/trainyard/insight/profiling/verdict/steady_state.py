"""The steady state of a job: its training steps after the warm-up, and what the hardware did meanwhile."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import (
    InstanceFacts,
    JobProfile,
    LoaderFacts,
    Numbers,
    ProgramFacts,
    RankProfile,
    StepTimes,
)
from trainyard.insight.profiling.traces.roles import TimeRole
from trainyard.insight.profiling.traces.trace_profile import TraceProfile

# How many steps after the warm-up a verdict needs.
MIN_STEPS = 5
# A step of the warm-up takes this many times as long as the usual ones, and only the first ones can be of it.
_WARM_UP, _MAX_WARM_UP_SHARE, _MAX_WARM_UP_ROWS = 1.5, 0.2, 100
# A single row that takes so much of all time is an event, and no property of the steps, if there are enough others.
_EVENT_SHARE, _EVENT_TIMES, _MIN_ROWS_FOR_EVENT = 0.2, 10.0, 30
_QUICKEST_PERCENT = 10
# On a full machine, a job with less than this part of its cores does not get what it could use.
_STARVED = 0.7
_COMPUTING = (StepPhase.FORWARD, StepPhase.BACKWARD, StepPhase.OPTIMIZER)

_Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SteadyRank:
    """The steady steps of one rank. `rows` are the positions of its rows among all of the rank."""

    profile: RankProfile
    rows: _Rows
    step_s: float
    phases_s: Numbers  # a mean step, by StepPhase
    notes: Sequence[str] = ()

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def program(self) -> ProgramFacts:
        return self.profile.program

    @property
    def all_steps(self) -> StepTimes:
        return self.profile.steps

    @property
    def counts(self) -> _Rows:
        counts: _Rows = self.all_steps.counts[self.rows]
        return counts

    @property
    def steps(self) -> int:
        return int(self.counts.sum())

    @property
    def start_us(self) -> int:
        return int(self.all_steps.starts_us[self.rows[0]])

    @property
    def end_us(self) -> int:
        return int(self.all_steps.ends_us[self.rows[-1]])

    @property
    def durations_s(self) -> Numbers:
        """The mean duration of the steps of each row."""
        durations: Numbers = self.all_steps.durations_s[self.rows]
        return durations

    def phase_rows_s(self, *phases: StepPhase) -> Numbers:
        """Return what a mean step of each row spends in phases."""
        total: Numbers = self.all_steps.phases_s[self.rows][:, list(phases)].sum(axis=1) / self.counts
        return total

    def share(self, *phases: StepPhase) -> float:
        return float(self.phases_s[list(phases)].sum()) / self.step_s if self.step_s else 0.0

    def slowed_share(self, phase: StepPhase) -> float:
        """Return the share of the step by which all but this phase takes longer than in the quickest steps."""
        mean, quickest = self.rest_s(phase)
        return max(0.0, mean - quickest) / self.step_s

    def rest_s(self, phase: StepPhase) -> tuple[float, float]:
        """Return how long all but this phase takes, on average and in the quickest tenth of the steps."""
        others = self.durations_s - self.phase_rows_s(phase)
        return float(np.average(others, weights=self.counts)), float(np.percentile(others, _QUICKEST_PERCENT))


@dataclass(frozen=True)
class SteadyState:
    """What the detectors read. Shares are means over the ranks, of the time of a step, from 0 to 1."""

    profile: JobProfile
    ranks: Sequence[SteadyRank]
    traces: Sequence[TraceProfile] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    @cached_property
    def step_s(self) -> float:
        return float(np.mean([rank.step_s for rank in self.ranks]))

    @cached_property
    def phases_s(self) -> Mapping[StepPhase, float]:
        mean = np.mean([rank.phases_s for rank in self.ranks], axis=0)
        return {phase: float(mean[phase]) for phase in StepPhase}

    def share(self, *phases: StepPhase) -> float:
        return sum(self.phases_s[phase] for phase in phases) / self.step_s if self.step_s else 0.0

    def slowed_share(self, phase: StepPhase) -> float:
        """Return the share of the step by which all but this phase takes longer than in the quickest steps."""
        return self.lead.slowed_share(phase)

    @property
    def has_phases(self) -> bool:
        """Whether it is known where steps compute. Of some frameworks, only the duration of steps is known."""
        return self.share(*_COMPUTING) > 0.01

    @property
    def computing_share(self) -> float:
        return self.share(*_COMPUTING) if self.has_phases else self.share(*_COMPUTING, StepPhase.OTHER)

    @cached_property
    def lead(self) -> SteadyRank:
        """The rank that waits most for data, which is the one to look at if ranks differ."""
        return max(self.ranks, key=lambda rank: rank.share(StepPhase.DATA_WAIT))

    @property
    def program(self) -> ProgramFacts:
        return self.lead.program

    @cached_property
    def loader(self) -> LoaderFacts | None:
        """The loader of the lead rank that takes most time."""
        return self.program.main_loader

    @property
    def is_on_gpu(self) -> bool:
        return self.program.device == "cuda"

    @property
    def instance(self) -> InstanceFacts:
        return self.profile.instances.get(self.lead.profile.host, InstanceFacts())

    @cached_property
    def cores(self) -> float | None:
        """The cores that the job may use on the host of the lead rank."""
        if self.instance.cores:
            return self.instance.cores
        samples = self.profile.hardware.get(self.lead.profile.host)
        names = samples.of(HardwareMetric.CPU_PERCENT) if samples else {}
        return float(sum(name != "total" for name in names)) or None

    @cached_property
    def machine_cores(self) -> int:
        samples = self.profile.hardware.get(self.lead.profile.host)
        return sum(name != "total" for name in samples.of(HardwareMetric.CPU_PERCENT)) if samples else 0

    @property
    def ranks_on_host(self) -> int:
        return sum(rank.profile.host == self.lead.profile.host for rank in self.ranks)

    @cached_property
    def cores_used(self) -> float | None:
        """How many cores the job keeps busy on the host of the lead rank."""
        percent = self.mean(HardwareMetric.JOB_CPU_PERCENT)
        if percent is None:
            percent = self.mean(HardwareMetric.CPU_PERCENT, "total")
        return None if percent is None or self.cores is None else percent * self.cores / 100

    @cached_property
    def is_machine_full(self) -> bool:
        """Whether all cores of the host are busy, by whatever jobs."""
        return (self.mean(HardwareMetric.CPU_PERCENT, "total") or 0.0) >= 90

    @property
    def is_starved(self) -> bool:
        """Whether other work takes so much of the cores that those in use do not tell how many the job would use."""
        used, cores = self.cores_used, self.cores
        return self.is_machine_full and used is not None and bool(cores) and used < _STARVED * (cores or 0)

    @cached_property
    def gpu_use(self) -> float | None:
        """The share of time in which the GPUs that the job uses at all compute something.

        Samples of the driver miss that a GPU idles between short kernels, so traces count more.
        """
        kernels, collectives = self.role_share(TimeRole.KERNEL), self.role_share(TimeRole.COMMUNICATION)
        if kernels is not None:
            return min(1.0, kernels + (collectives or 0.0))
        percents = self.gpus_percent.values()
        used = [value for value in percents if value >= 1] or [max(percents, default=0.0)]
        return float(np.mean(used)) / 100 if percents else None

    @cached_property
    def gpus_percent(self) -> Mapping[tuple[str, str], float]:
        """The mean utilization of every GPU, by host and device."""
        return {
            (host, device): mean
            for host in self.profile.hardware
            for device, values in self.window(HardwareMetric.GPU_PERCENT, host).items()
            if (mean := _mean(values)) is not None
        }

    def idle_bound(self, share: float) -> float:
        """Return the part of a share in which the GPU is idle: what a program saves at most if it computes on one.

        The driver measures the utilization coarsely, so some of the rest counts too.
        """
        if not self.is_on_gpu or self.gpu_use is None:
            return share
        return min(share, max(0.0, 1 - self.gpu_use))

    def role_share(self, role: TimeRole) -> float | None:
        """Return the share of the step in which a GPU has a role; None without traces of one.

        Steps take longer while they are traced, but what the GPU does in them does not. So its time counts in steps
        that are not.
        """
        shares = [
            trace.roles.mean_s[role] / self.step_s if trace.windows.are_steps else trace.roles.shares[role]
            for trace in self.traces
            if trace.has_device
        ]
        return min(1.0, float(np.mean(shares))) if shares else None

    def window(self, metric: HardwareMetric, host: str | None = None) -> Mapping[str, Numbers]:
        """Return the samples of a metric in the time of the steady steps, by device."""
        samples = self.profile.hardware.get(host if host is not None else self.lead.profile.host)
        if samples is None or not len(samples):
            return {}
        start = min(rank.start_us for rank in self.ranks)
        end = max(rank.end_us for rank in self.ranks)
        # Rates are of the time before a sample.
        first = int(np.searchsorted(samples.times_us, start, side="right"))
        last = int(np.searchsorted(samples.times_us, end, side="right"))
        if last == first:
            last = min(first + 1, len(samples))
        return {device: values[first:last] for device, values in samples.of(metric).items()}

    def mean(self, metric: HardwareMetric, device: str = "", host: str | None = None) -> float | None:
        """Return the mean of a series in the time of the steady steps; None if there are no samples."""
        return _mean(self.window(metric, host).get(device))


def find_steady_state(profile: JobProfile, traces: Sequence[TraceProfile] = ()) -> SteadyState | None:
    """Return the steady state; None if no rank has enough training steps yet."""
    found = [steady for rank in profile.ranks if (steady := _steady_rank(rank)) is not None]
    # A program may run short trainings beside the long one.
    longest = max((rank.end_us - rank.start_us for rank in found), default=0)
    ranks = [rank for rank in found if rank.end_us - rank.start_us >= longest / 2]
    if not ranks:
        return None
    notes = tuple(dict.fromkeys(note for rank in ranks for note in rank.notes))
    return SteadyState(profile, ranks, traces, notes)


def training_steps(profile: JobProfile) -> int:
    """Return how many training steps the rank with the most of them has recorded."""
    return max((int(rank.steps.counts[_training_rows(rank.steps)].sum()) for rank in profile.ranks), default=0)


def first_step_us(profile: JobProfile) -> int | None:
    """Return when the first step of any kind began."""
    return min((int(rank.steps.starts_us[0]) for rank in profile.ranks if len(rank.steps)), default=None)


def _steady_rank(rank: RankProfile) -> SteadyRank | None:
    steps = rank.steps
    rows = _training_rows(steps)
    rows = rows[_warm_up(steps.durations_s[rows]) :]
    if int(steps.counts[rows].sum()) < MIN_STEPS:
        return None
    spans = (steps.ends_us[rows] - steps.starts_us[rows]) / 1e6
    rows, notes = _without_event(rank, rows, spans)
    counts = int(steps.counts[rows].sum())
    total_s = float((steps.ends_us[rows] - steps.starts_us[rows]).sum()) / 1e6
    if total_s <= 0:
        return None
    return SteadyRank(rank, rows, total_s / counts, steps.phases_s[rows].sum(axis=0) / counts, notes)


def _training_rows(steps: StepTimes) -> _Rows:
    is_training = np.fromiter((mode is Mode.TRAIN for mode in steps.modes), np.bool_, len(steps))
    return np.flatnonzero(is_training & (steps.counts > 0))


def _warm_up(durations_s: Numbers) -> int:
    """Return how many rows the warm-up has: the first, and those after it that are slow too."""
    most = min(_MAX_WARM_UP_ROWS, int(len(durations_s) * _MAX_WARM_UP_SHARE))
    if most < 1:
        return min(1, max(0, len(durations_s) - MIN_STEPS))
    usual = float(np.median(durations_s))
    slow = durations_s[:most] > _WARM_UP * usual
    return max(1, int(np.argmin(slow)) if not slow.all() else most)


def _without_event(rank: RankProfile, rows: _Rows, spans_s: Numbers) -> tuple[_Rows, Sequence[str]]:
    """Leave out one row that took very long, such as one in which the machine was suspended."""
    longest = int(np.argmax(spans_s))
    usual = float(np.median(spans_s))
    is_event = spans_s[longest] > max(_EVENT_SHARE * spans_s.sum(), _EVENT_TIMES * usual)
    if len(rows) < _MIN_ROWS_FOR_EVENT or not is_event:
        return rows, ()
    number = int(rank.steps.numbers[rows[longest]])
    note = f"Step {number} of {rank.name} took {spans_s[longest]:.0f} s; it is left out as a single event."
    return np.delete(rows, longest), (note,)


def _mean(values: Iterable[float] | None) -> float | None:
    if values is None:
        return None
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    return float(known.mean()) if len(known) else None
