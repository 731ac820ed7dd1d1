"""GPUs and ranks with more to do than others."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.insight.profiling.contract import JobProfile, Numbers
from trainyard.insight.profiling.verdict.wording import percent
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding, ProfilerRule
from trainyard.insight.rules.profiler.patience import MIN_DATAPOINTS, PATIENCE, PATIENCE_S, SCAN_INTERVAL, Patience
from trainyard.insight.rules.profiler.robust_statistics import distance, mean
from trainyard.insight.rules.profiler.training_samples import training_samples
from trainyard.insight.rules.profiler.training_steps import TrainingSteps, training_steps
from trainyard.insight.rules.profiler.waits import speedup

# In these, ranks wait for one another. A backward pass contains the collectives of data parallel training.
_WAITING = (StepPhase.BACKWARD, StepPhase.COMMUNICATION)
_OWN = tuple(phase for phase in StepPhase if phase not in _WAITING)
# A device computes and communicates on its own; the program waits for it wherever it needs a result, but not in these.
_OWN_BESIDE_DEVICE = (StepPhase.DATA_WAIT, StepPhase.CHECKPOINT)
# Ranks that wait for one another in each step have steps of about the same length, and about as many.
_MAX_STEP_RATIO, _MAX_COUNT_RATIO = 1.25, 2.0


class LoadBalancing(ProfilerRule):
    """Finds GPUs that are busier than others, and ranks for which the others wait."""

    name = "LoadBalancing"
    parameters = (
        Parameter(
            "threshold",
            float,
            0.5,
            "How far apart the distributions of the use of two GPUs may be: their Jensen-Shannon distance, 0 to 0.83.",
            at_least=0,
            at_most=1,
        ),
        Parameter(
            "min_difference",
            float,
            0.0,
            "By how many percentage points the use of two GPUs must differ, on average, to be a finding.",
            advised=10.0,
            at_least=0,
        ),
        Parameter(
            "rank_threshold",
            float,
            100.0,
            "Which percentage of a step the others may wait for the slowest rank; 100 does not compare ranks.",
            advised=10.0,
            at_least=0,
            at_most=100,
        ),
        *(PATIENCE, PATIENCE_S, SCAN_INTERVAL),
    )
    purpose = "Compares the use of all GPUs, on all instances, and the work that each rank has in a step."
    recommendation = (
        "Give each rank the same number of samples of the same size, and the same work: let rank 0 do no more than the "
        "others, shard the data evenly, and look at why the rank's data or hardware is slower."
    )

    def __init__(
        self,
        *,
        threshold: float,
        min_difference: float,
        rank_threshold: float,
        patience: int,
        patience_s: float,
        scan_interval_us: int,  # noqa: ARG002 - AWS's
    ) -> None:
        self._threshold, self._difference, self._rank = threshold, min_difference, rank_threshold
        self._patience = Patience(patience, patience_s)

    def check(self, profile: JobProfile) -> ProfilerCheck:
        gpus, undecided = self._gpus(profile)
        ranks = _synchronized_ranks(profile)
        findings: list[ProfilerFinding] = []
        details: dict[str, Any] = {}
        points = 0
        if len(gpus) > 1:
            points += len(gpus)
            details["gpu_mean_percent"] = {f"{host} {device}": mean(each) for (host, device), each in gpus.items()}
            findings += self._compare_gpus(gpus, details)
        if len(ranks) > 1 and not self._waits(profile, ranks):
            points += len(ranks)
            findings += self._compare_ranks(ranks, details)
        if points:
            return ProfilerCheck(findings, points, len(findings), details)
        is_single = len(profile.ranks) < 2 and not _has_several_gpus(profile)
        return ProfilerCheck(undecided=_SINGLE if is_single else undecided or _NOTHING)

    def _gpus(self, profile: JobProfile) -> tuple[Mapping[tuple[str, str], Numbers], str]:
        """Return the use of each GPU by its host and name, and what is missing."""
        found: dict[tuple[str, str], Numbers] = {}
        undecided = ""
        for samples in training_samples(profile):
            missing = self._patience.missing(profile, len(samples), seconds=samples.seconds)
            undecided = missing or undecided
            # A GPU that is not used at all is the concern of LowGPUUtilization.
            found |= {} if missing else {(samples.host, name): each for name, each in samples.used_gpus.items()}
        return found, undecided

    def _waits(self, profile: JobProfile, ranks: Sequence[TrainingSteps]) -> bool:
        seconds = max(each.seconds for each in ranks)
        return bool(self._patience.missing(profile, min(each.steps for each in ranks), seconds=seconds))

    def _compare_gpus(self, gpus: Mapping[tuple[str, str], Numbers], details: dict[str, Any]) -> list[ProfilerFinding]:
        """Compare each GPU with the busiest one: pairs of idle ones would say the same again."""
        means = {name: mean(values) for name, values in gpus.items()}
        busiest = max(means, key=lambda name: means[name])
        found = []
        for name, values in gpus.items():
            apart = distance(values, gpus[busiest])
            details.setdefault("distance_to_busiest", {})[" ".join(name)] = apart
            less = means[busiest] - means[name]
            if apart > self._threshold and less > self._difference:
                host, device = name
                found.append(
                    ProfilerFinding(
                        f"{device} of {host} is {means[name]:.0f} % busy on average, and {busiest[1]} of {busiest[0]} "
                        f"{means[busiest]:.0f} %; the distance of their distributions is {apart:.2f} (limit "
                        f"{self._threshold:g}).",
                        host=host,
                        device=device,
                        value=apart,
                        threshold=self._threshold,
                    )
                )
        return found

    def _compare_ranks(self, ranks: Sequence[TrainingSteps], details: dict[str, Any]) -> list[ProfilerFinding]:
        """Find the rank that the others wait for: the one with more of its own work than the median rank."""
        phases = np.array([each.phase_step_s for each in ranks])
        compared = _OWN if all(each.rank.program.device == "cpu" for each in ranks) else _OWN_BESIDE_DEVICE
        own = phases[:, list(compared)].sum(axis=1)
        excess = own - np.median(np.delete(own, own.argmax()))
        totals = phases.sum(axis=1)
        slowest = int(excess.argmax())
        step_s = float(totals[slowest])
        share = float(excess[slowest]) / step_s if step_s > 0 else 0.0
        details["own_step_s"] = {each.rank.name: float(value) for each, value in zip(ranks, own, strict=True)}
        details["step_s"] = {each.rank.name: float(value) for each, value in zip(ranks, totals, strict=True)}
        details["slowest_rank"] = ranks[slowest].rank.name
        details["waiting_share"] = max(share, 0.0)
        if 100 * share <= self._rank or self._rank >= 100:
            return []
        more = phases[slowest] - np.median(np.delete(phases, slowest, axis=0), axis=0)
        cause = max(compared, key=lambda phase: more[phase])
        rank = ranks[slowest].rank
        return [
            ProfilerFinding(
                f"The other ranks wait for {rank.name} on {rank.host} in {percent(share)} of the step time (limit "
                f"{self._rank:g} %): its own work takes {own[slowest] * 1e3:.0f} ms in a step, "
                f"{excess[slowest] * 1e3:.0f} ms more than that of the others, most of it in "
                f"{cause.name.lower().replace('_', ' ')}. Without that, steps would be up to {speedup(share):.1f} "
                "times as fast.",
                host=rank.host,
                worker=rank.name,
                value=100 * share,
                threshold=self._rank,
            )
        ]


def _synchronized_ranks(profile: JobProfile) -> Sequence[TrainingSteps]:
    """Return the steps of the ranks of one training, by rank; none if the ranks do not step together.

    A program may run several trainings one after another, in processes with the same rank; the longest one counts.
    """
    found: dict[int, TrainingSteps] = {}
    for steps in training_steps(profile):
        known = found.get(steps.rank.rank)
        if steps.steps >= MIN_DATAPOINTS and (known is None or steps.steps > known.steps):
            found[steps.rank.rank] = steps
    ranks = [found[number] for number in sorted(found)]
    lengths, counts = [each.step_s for each in ranks], [each.steps for each in ranks]
    is_together = ranks and max(lengths) <= _MAX_STEP_RATIO * min(lengths)
    return ranks if is_together and max(counts) <= _MAX_COUNT_RATIO * min(counts) else []


def _has_several_gpus(profile: JobProfile) -> bool:
    return sum(len(samples.of(HardwareMetric.GPU_PERCENT)) for samples in profile.hardware.values()) > 1


_SINGLE = "There is only one GPU or rank, so there is nothing to balance."
_NOTHING = "There are neither samples of several GPUs in use nor enough steps of several ranks."
