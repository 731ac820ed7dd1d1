"""Data workers that are too many or too few."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.insight.profiling.contract import JobProfile, LoaderFacts, RankProfile
from trainyard.insight.profiling.verdict.loader_load import LoaderLoad, measure_loader
from trainyard.insight.profiling.verdict.steady_state import find_steady_state
from trainyard.insight.profiling.verdict.wording import count, describe_cores, percent, times
from trainyard.insight.rules.contract import Parameter, Severity
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding, ProfilerRule
from trainyard.insight.rules.profiler.patience import PATIENCE_S, SCAN_INTERVAL, Patience
from trainyard.insight.rules.profiler.robust_statistics import mean, number_or_none
from trainyard.insight.rules.profiler.training_samples import instance_cores, training_samples
from trainyard.insight.rules.profiler.training_steps import TrainingSteps, phases_of, training_steps
from trainyard.insight.rules.profiler.waits import mean_cores, speedup

# From this share of its cores on, a host has no room for more workers, and too many get in each other's way.
_FULL_SHARE = 0.85
# Of the time that programs wait for a core.
_CROWDED_PRESSURE_PERCENT = 25.0


@dataclass(frozen=True, slots=True)
class _Loading:
    """The data workers of one host, and what they cost and leave undone.

    `load` is None if there are too few steps to measure it.
    """

    host: str
    cores: float
    workers: int
    steps: Sequence[TrainingSteps]
    used_cores: float  # NaN if unknown
    pressure_percent: float
    load: LoaderLoad | None

    @property
    def wait_share(self) -> float:
        return max((each.share(StepPhase.DATA_WAIT) for each in self.steps), default=0.0)

    @property
    def is_full(self) -> bool:
        """Whether the job itself uses the cores that it may."""
        return self.used_cores > _FULL_SHARE * self.cores

    @property
    def is_crowded(self) -> bool:
        """Whether its processes compete for cores, with one another or with other jobs."""
        return self.is_full or self.pressure_percent > _CROWDED_PRESSURE_PERCENT

    @property
    def fetch_s(self) -> float:
        """The mean time that a worker takes for a batch; NaN if unknown."""
        return math.nan if self.load is None or self.load.fetch_s is None else self.load.fetch_s

    @property
    def computing_s(self) -> float:
        """How long a step takes without its wait for data, on the slowest rank."""
        return max((each.step_s * (1 - each.share(StepPhase.DATA_WAIT)) for each in self.steps), default=0.0)

    @property
    def needed_workers(self) -> float:
        """How many workers, on all ranks, make batches as fast as the steps consume them; NaN if unknown."""
        if self.load is None or self.load.needed_workers is None:
            return math.nan
        return float(len(self.steps) * self.load.needed_workers)

    @property
    def best_workers(self) -> int:
        """How many workers a rank should have, as the verdict advises."""
        if self.load is not None:
            return self.load.best_workers
        return 1 if math.isnan(self.cores) else max(1, int(self.cores) // len(self.steps))


class Dataloader(ProfilerRule):
    """Finds data loaders with too many workers for the cores, or with too few for the training."""

    name = "Dataloader"
    parameters = (
        Parameter(
            "min_threshold",
            float,
            70.0,
            "Fewer workers than this percentage of the cores are few; it is a finding if the training waits for them.",
            at_least=0,
        ),
        Parameter(
            "max_threshold", float, 200.0, "More workers than this percentage of the cores are many.", at_least=0
        ),
        Parameter(
            "wait_threshold",
            float,
            0.0,
            "Few workers are a finding only if steps wait for data in more than this percentage of their time.",
            advised=10.0,
            at_least=0,
            at_most=100,
        ),
        Parameter(
            "patience",
            int,
            10,
            "How many steps there must be before the rule judges; 0 sets no such limit.",
            at_least=0,
        ),
        *(PATIENCE_S, SCAN_INTERVAL),
    )
    purpose = "Compares the workers of data loaders with the cores, and looks at how long steps wait for data."
    recommendation = (
        "Set num_workers as the finding says, and keep the workers from one epoch to the next with "
        "persistent_workers=True; on a GPU, pin_memory=True makes the copies faster."
    )

    def __init__(
        self,
        *,
        min_threshold: float,
        max_threshold: float,
        wait_threshold: float,
        patience: int,
        patience_s: float,
        scan_interval_us: int,  # noqa: ARG002 - AWS's
    ) -> None:
        self._min, self._max, self._wait = min_threshold, max_threshold, wait_threshold
        self._patience = Patience(patience, patience_s)

    def check(self, profile: JobProfile) -> ProfilerCheck:
        findings: list[ProfilerFinding] = []
        details: dict[str, Mapping[str, Any]] = {}
        undecided, points = "", 0
        for loading in _loadings(profile):
            steps = min(each.steps for each in loading.steps)
            seconds = max(each.seconds for each in loading.steps)
            undecided = self._patience.missing(profile, steps, seconds=seconds, what="steps")
            if undecided:
                continue
            points += 1
            details[loading.host] = {
                "workers": loading.workers,
                "cores": number_or_none(loading.cores),
                "workers_percent_of_cores": number_or_none(100 * loading.workers / loading.cores),
                "data_wait_percent": 100 * loading.wait_share,
                "fetch_s": number_or_none(loading.fetch_s),
                "cores_used": number_or_none(loading.used_cores),
                "cpu_pressure_percent": number_or_none(loading.pressure_percent),
                "max_speedup": self._max_speedup(loading),
                "is_pinning": all(_main_loader(each.rank).is_pinning for each in loading.steps),
                "recommended_workers": loading.best_workers,
            }
            findings += self._findings(loading)
        return ProfilerCheck(findings, points, len(findings), details, "" if points else undecided or _NOTHING)

    def _findings(self, loading: _Loading) -> list[ProfilerFinding]:
        most, least = loading.cores * self._max / 100, loading.cores * self._min / 100
        # It takes many workers if they mostly wait for disks or the network themselves.
        is_needed = loading.needed_workers > most and not loading.is_crowded
        if loading.workers > most and not is_needed:
            return [self._too_many(loading, most)]
        is_short = loading.workers < least and 100 * loading.wait_share > self._wait
        return [self._too_few(loading, least)] if is_short and self._has_room(loading) else []

    def _has_room(self, loading: _Loading) -> bool:
        """Whether another worker would find a core."""
        return self._wait == 0 or not loading.is_full

    def _too_many(self, loading: _Loading, most: float) -> ProfilerFinding:
        waits = f", and steps still spend {percent(loading.wait_share)} of their time waiting for data" * (
            100 * loading.wait_share > self._wait > 0
        )
        return ProfilerFinding(
            f"Data loaders on {loading.host} have {loading.workers} worker processes for {_cores(loading)}, more than "
            f"{most:g}{_crowd(loading)}{waits}. {_enough(loading)}.",
            host=loading.host,
            value=100 * loading.workers / loading.cores,
            threshold=self._max,
            severity=Severity.WARNING if loading.is_crowded else Severity.NOTICE,
        )

    def _too_few(self, loading: _Loading, least: float) -> ProfilerFinding:
        used = "".join(f" {each}" for each in describe_cores(number_or_none(loading.used_cores), loading.cores))
        return ProfilerFinding(
            f"Data loaders on {loading.host} have {_workers(loading)} for {_cores(loading)}, fewer than {least:g}, and "
            f"steps spend {percent(loading.wait_share)} of their time waiting for data.{used} With "
            f"{_per_rank(loading.best_workers, loading)}, steps would be up to "
            f"{times(self._max_speedup(loading))} as fast.",
            host=loading.host,
            value=100 * loading.workers / loading.cores,
            threshold=self._min,
        )

    def _max_speedup(self, loading: _Loading) -> float:
        """Return how many times faster steps are at most with the recommended workers."""
        without_wait = speedup(loading.wait_share)
        if math.isnan(loading.fetch_s) or loading.fetch_s <= 0:
            return without_wait
        step_s = loading.computing_s * without_wait
        return max(1.0, min(without_wait, step_s * loading.best_workers / loading.fetch_s))


def _loadings(profile: JobProfile) -> list[_Loading]:
    """Return the hosts whose ranks have data loaders."""
    samples = {each.host: each for each in training_samples(profile)}
    found = []
    for host in sorted({rank.host for rank in profile.ranks}):
        steps = [each for each in training_steps(profile, host=host) if each.rank.program.loaders]
        if not steps:
            continue
        known = samples.get(host)
        pressure = known.one(HardwareMetric.PRESSURE_SOME_PERCENT, "cpu") if known is not None else None
        # Where the cores are unknown, they are NaN, so that no number of workers is too many or too few.
        loading = _Loading(
            host,
            instance_cores(profile, host) if known is None else known.cores,
            sum(max(0, _main_loader(each.rank).workers) for each in steps),
            steps,
            math.nan if known is None else mean_cores(known),
            math.nan if pressure is None else mean(pressure),
            _measure_load(profile, steps),
        )
        found.append(loading)
    return found


def _measure_load(profile: JobProfile, steps: Sequence[TrainingSteps]) -> LoaderLoad | None:
    """Measure how loaders keep up as the verdict does, so that both name the same number of workers."""
    ranks = [replace(each.rank, steps=replace(each.rank.steps, phases_s=phases_of(each.rank))) for each in steps]
    state = find_steady_state(replace(profile, ranks=ranks))
    return measure_loader(state) if state is not None else None


def _main_loader(rank: RankProfile) -> LoaderFacts:
    loader = rank.program.main_loader
    assert loader is not None, "only ranks with loaders are looked at"
    return loader


def _workers(loading: _Loading) -> str:
    return count(loading.workers, "worker process", "worker processes") if loading.workers else "no worker processes"


def _cores(loading: _Loading) -> str:
    return count(loading.cores, "core")


def _crowd(loading: _Loading) -> str:
    """Say why more processes would not find a core, as a part of a sentence."""
    if loading.is_full:
        return f"; the job keeps {loading.used_cores:.1f} of the cores busy, so its workers wait for one another"
    if loading.is_crowded:
        return f"; programs on the machine wait for a core {loading.pressure_percent:.0f} % of the time"
    return ""


def _enough(loading: _Loading) -> str:
    workers = loading.best_workers
    verb = "is" if workers == 1 else "are"
    each = " for each rank" if len(loading.steps) > 1 else ""
    return f"{count(workers, 'worker')}{each} {verb} enough"


def _per_rank(workers: int, loading: _Loading) -> str:
    return f"{count(workers, 'worker')}{' for each rank' if len(loading.steps) > 1 else ''}"


_NOTHING = "No steps with data loaders are known."
