"""Steps that take far longer than those around them."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import JobProfile, Numbers, RankProfile
from trainyard.insight.profiling.verdict.wording import percent
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding, ProfilerRule
from trainyard.insight.rules.profiler.patience import SCAN_INTERVAL
from trainyard.insight.rules.profiler.robust_statistics import MAD_TO_SIGMA
from trainyard.insight.rules.profiler.training_steps import is_mode, phases_of
from trainyard.insight.rules.profiler.waits import speedup

# As AWS's: fewer steps are not judged.
_MIN_STEPS = 100
# Steps are compared with those around them, because they may become longer as the training goes on.
_BLOCK_ROWS, _MAX_BLOCKS = 100, 20
# Steps that differ by less than this share of their duration are alike, however regular the others are.
_MIN_SIGMA_SHARE = 0.05
# A kind of step that is more frequent than this is no outlier.
_MAX_OUTLIER_SHARE = 0.3
# What a busy machine takes from a program now and then is no outlier either.
_MIN_EXCESS_S = 0.01


@dataclass(frozen=True, slots=True)
class _Outliers:
    """The outliers among the rows of a rank in one mode. `excess_s` is how much longer they took, by phase."""

    steps: int
    count: int
    usual_s: float
    longest_s: float
    excess_s: Numbers
    total_s: float
    every: int | None

    @property
    def share(self) -> float:
        return float(self.excess_s.sum()) / self.total_s if self.total_s > 0 else 0.0


class StepOutlier(ProfilerRule):
    """Finds trainings that lose time in steps that take far longer than the others."""

    name = "StepOutlier"
    parameters = (
        Parameter(
            "stddev",
            float,
            3.0,
            "How many robust standard deviations above the median of the steps around it an outlier is.",
            advised=5.0,
            at_least=0,
        ),
        Parameter(
            "mode",
            str,
            None,
            "The mode whose steps are judged; those of each mode if not set.",
            choices=tuple(Mode),
        ),
        Parameter("n_outliers", int, 10, "How many outliers a rank may have.", at_least=0),
        Parameter(
            "min_share",
            float,
            0.0,
            "Which percentage of the time outliers must cost, more than usual steps would, to be a finding.",
            advised=5.0,
            at_least=0,
            at_most=100,
        ),
        SCAN_INTERVAL,
    )
    purpose = "Looks for steps that take far longer than those around them, and how much time they cost."
    recommendation = (
        "Look at the phase that the finding names: write checkpoints less often or in the background, keep data "
        "workers from epoch to epoch, and warm up caches before the training."
    )

    def __init__(
        self,
        *,
        stddev: float,
        mode: str | None,
        n_outliers: int,
        min_share: float,
        scan_interval_us: int,  # noqa: ARG002 - AWS's
    ) -> None:
        self._stddev, self._allowed, self._min_share = stddev, n_outliers, min_share
        self._modes = [Mode.TRAIN, Mode.EVAL, Mode.PREDICT] if mode in (None, Mode.GLOBAL) else [Mode(str(mode))]

    def check(self, profile: JobProfile) -> ProfilerCheck:
        findings: list[ProfilerFinding] = []
        details: dict[str, Mapping[str, Any]] = {}
        points = violations = 0
        for rank in profile.ranks:
            phases = phases_of(rank)
            for mode in self._modes:
                rows = np.flatnonzero(is_mode(rank, mode) & (rank.steps.counts > 0))
                # The first step compiles, allocates and starts workers.
                found = self._outliers(rank, phases, rows[1:])
                if found is None:
                    continue
                points += found.steps
                violations += found.count
                details[f"{rank.name} {mode}"] = {
                    "steps": found.steps,
                    "outliers": found.count,
                    "median_s": found.usual_s,
                    "longest_s": found.longest_s,
                    "lost_s": float(found.excess_s.sum()),
                    "lost_share": found.share,
                    "phase": _phase(found),
                    "every_steps": found.every,
                    "max_speedup": speedup(found.share),
                }
                if found.count > self._allowed and 100 * found.share > self._min_share:
                    findings.append(self._finding(rank, mode, found))
        undecided = "" if points else f"No rank has {_MIN_STEPS} steps of one mode yet."
        return ProfilerCheck(findings, points, violations, details, undecided)

    def _outliers(self, rank: RankProfile, phases: Numbers, rows: NDArray[np.intp]) -> _Outliers | None:
        counts = rank.steps.counts[rows].astype(np.float64)
        if counts.sum() < _MIN_STEPS or len(rows) < _MIN_STEPS // 10:
            return None
        seconds = phases[rows].sum(axis=1)
        each = seconds / counts
        usual, sigma = _local_scale(each)
        outlying = each > usual + self._stddev * np.maximum(sigma, _MIN_SIGMA_SHARE * usual)
        outlying &= seconds - usual * counts > _MIN_EXCESS_S
        # A machine that was suspended is not a slow step.
        if seconds.argmax() in np.flatnonzero(outlying) and seconds.max() > seconds.sum() / 2:
            outlying[seconds.argmax()] = False
            seconds[seconds.argmax()] = 0.0
        if counts[outlying].sum() > _MAX_OUTLIER_SHARE * counts.sum():
            outlying[:] = False
        chosen = rows[outlying]
        middle = np.median(phases[rows] / counts[:, None], axis=0)
        excess = np.maximum(phases[chosen] - middle * counts[outlying][:, None], 0.0).sum(axis=0)
        over = float((seconds[outlying] - (usual * counts)[outlying]).sum())
        # What exceeds the median of one phase may be less in another.
        excess *= over / excess.sum() if excess.sum() > 0 else 0.0
        return _Outliers(
            int(counts.sum()),
            len(chosen),
            float(np.median(each)),
            float(each[outlying].max(initial=0.0)),
            excess,
            float(seconds.sum()),
            _interval(rank.steps.numbers[chosen]),
        )

    def _finding(self, rank: RankProfile, mode: Mode, found: _Outliers) -> ProfilerFinding:
        every = f" They come about every {found.every} steps." if found.every else ""
        return ProfilerFinding(
            f"{found.count} of {found.steps} {mode} steps of {rank.name} (limit {self._allowed}) take far longer than "
            f"the steps around them: up to {found.longest_s:.3g} s instead of about {found.usual_s:.3g} s, most of it "
            f"in {_phase(found).replace('_', ' ')}.{every} They cost {percent(found.share)} of the "
            f"time (limit {self._min_share:g} %); without that, the training would be up to "
            f"{speedup(found.share):.2f} times as fast.",
            host=rank.host,
            worker=rank.name,
            value=float(found.count),
            threshold=float(self._allowed),
        )


def _local_scale(values: Numbers) -> tuple[Numbers, Numbers]:
    """Return, for each value, the median and the robust standard deviation of the values around it."""
    count = len(values)
    blocks = int(min(_MAX_BLOCKS, max(1, count // _BLOCK_ROWS)))
    edges = np.linspace(0, count, blocks + 1).astype(np.intp)
    usual, sigma = np.empty(count), np.empty(count)
    for first, last in pairwise(edges):
        part = values[first:last]
        middle = np.median(part)
        usual[first:last] = middle
        sigma[first:last] = MAD_TO_SIGMA * np.median(np.abs(part - middle))
    return usual, sigma


def _interval(numbers: NDArray[np.int64]) -> int | None:
    """Return in which interval of steps the outliers come; None if in none."""
    gaps = np.diff(numbers)
    if len(gaps) < 3:
        return None
    usual = float(np.median(gaps))
    is_regular = usual > 1 and float((np.abs(gaps - usual) <= 0.05 * usual).mean()) > 0.7
    return round(usual) if is_regular else None


def _phase(found: _Outliers) -> str:
    return StepPhase(int(found.excess_s.argmax())).name.lower() if found.excess_s.any() else ""
