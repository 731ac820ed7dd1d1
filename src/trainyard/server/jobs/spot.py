"""Totals of spot jobs, by instance type and over all types, for each account.

The totals are counters that the records update in the transaction that ends a job. Their cost does not depend on the
number of jobs, and they stay when a job is deleted. Resume times are counted in a logarithmic histogram with 16 classes
per doubling, so a reported median or maximum is within 2.5 % of the true one.
"""

import math
from collections import Counter as Sums
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob, bill_of
from trainyard.server.records.contract import Counter

# All types together. A job with several types counts once.
ALL = "*"

_COUNTER = "spot"
_RESUMED = "resumed"
_CLASSES_PER_DOUBLING = 16
_MIN_RESUME_S = 0.001


@dataclass(frozen=True, slots=True)
class SpotUse:
    """The spot jobs of one type that have ended. Instance seconds are seconds times the instances of that type."""

    instance_type: str
    jobs: int = 0
    interruptions: int = 0
    trained_s: int = 0
    billed_s: int = 0
    trained_instance_s: int = 0
    billed_instance_s: int = 0
    # The histogram of resume times: counts by class.
    resumed: Mapping[int, int] = field(default_factory=dict)

    @property
    def median_resume_s(self) -> float | None:
        """The median time from an interruption until the job trains again."""
        return self._resume_s((sum(self.resumed.values()) + 1) // 2)

    @property
    def worst_resume_s(self) -> float | None:
        return self._resume_s(sum(self.resumed.values()))

    def _resume_s(self, rank: int) -> float | None:
        """Return the resume time with this rank, counted from 1 for the shortest, or None if no job resumed."""
        for number in sorted(self.resumed):
            rank -= self.resumed[number]
            if rank <= 0:
                return _class_midpoint_s(number)
        return None


def spot_counts(job: TrainingJob) -> Mapping[str, int]:
    """Return what a spot job that has ended adds to the counters of its account."""
    if not job.plan.is_spot:
        return {}
    types = Sums(job.plan.instance_types)
    return {
        f"{_COUNTER}/{name}/{what}": count
        for name, instances in {**types, ALL: types.total()}.items()
        for what, count in _counts(job, instances).items()
    }


def spot_uses(counters: Iterable[Counter]) -> list[SpotUse]:
    """Return the totals over all accounts with these counters, by type. The total over all types comes last."""
    sums: dict[str, Sums[str]] = {}
    for counter in counters:
        kind, _, rest = counter.name.partition("/")
        if kind == _COUNTER:
            name, _, what = rest.partition("/")
            sums.setdefault(name, Sums())[what] += counter.value
    return [_use(name, sums[name]) for name in sorted(sums, key=lambda name: (name == ALL, name))]


def resume_times(job: TrainingJob) -> Iterator[timedelta]:
    """Yield the time from each interruption until the job trained again."""
    since = None
    for step in job.transitions:
        if step.status is SecondaryStatus.INTERRUPTED:
            since = since or step.started_at
        elif step.status is SecondaryStatus.TRAINING and since is not None:
            yield step.started_at - since
            since = None


def _counts(job: TrainingJob, instances: int) -> Mapping[str, int]:
    bill = bill_of(job)
    counts = Sums({"jobs": 1})
    counts["interruptions"] = sum(step.status is SecondaryStatus.INTERRUPTED for step in job.transitions)
    if bill is not None:
        for what, seconds in (("trained", bill.trained_s), ("billed", bill.billed_s)):
            counts.update({f"{what}-s": seconds, f"{what}-instance-s": seconds * instances})
    counts.update(f"{_RESUMED}/{_class_of(each)}" for each in resume_times(job))
    return {what: count for what, count in counts.items() if count}


def _use(name: str, sums: Sums[str]) -> SpotUse:
    found = {what.partition("/")[2]: count for what, count in sums.items() if what.startswith(f"{_RESUMED}/")}
    return SpotUse(
        name,
        jobs=sums["jobs"],
        interruptions=sums["interruptions"],
        trained_s=sums["trained-s"],
        billed_s=sums["billed-s"],
        trained_instance_s=sums["trained-instance-s"],
        billed_instance_s=sums["billed-instance-s"],
        resumed={int(number): count for number, count in found.items()},
    )


def _class_of(time: timedelta) -> int:
    return math.floor(math.log2(max(time.total_seconds(), _MIN_RESUME_S)) * _CLASSES_PER_DOUBLING)


def _class_midpoint_s(number: int) -> float:
    return float(2 ** ((number + 0.5) / _CLASSES_PER_DOUBLING))
