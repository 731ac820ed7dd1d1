"""What lists show of a job of any kind, kept by revision so that a list reads only the jobs that have changed."""

import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from trainyard.foundation.clock import from_micros
from trainyard.foundation.jobs.attempts import MetricSummary, merge_metrics
from trainyard.foundation.jobs.status import FINAL, ON_INSTANCES, PRIMARY, SecondaryStatus
from trainyard.foundation.plain import from_plain
from trainyard.server.jobs import processing, training, tuning
from trainyard.server.records.contract import Records, Resource, ResourceId, ResourceRevision

# About 2 KB each.
MAX_KEPT = 30_000

# One metric of a job has a few values; none of the lists shows more than these metrics and hyperparameters of a job.
_MAX_NAMES = 400


class SummaryKind(StrEnum):
    """The kinds of jobs that a list can have."""

    TRAINING = "training"
    PROCESSING = "processing"
    TUNING = "tuning"


RECORD_KINDS: Mapping[SummaryKind, str] = {
    SummaryKind.TRAINING: training.KIND,
    SummaryKind.PROCESSING: processing.KIND,
    SummaryKind.TUNING: tuning.KIND,
}


@dataclass(frozen=True, slots=True)
class JobSummary:
    """What a list shows of one job. `record_name` is the name by which the records order it.

    `is_queued` if it waits for its first or next placement. `secondary` and `message` are those of the last transition.
    """

    id: ResourceId
    kind: SummaryKind
    account: str
    record_name: str
    name: str
    arn: str
    status: str
    secondary: str
    message: str
    created_at: datetime
    modified_at: datetime
    revision: int
    started_at: datetime | None = None
    ended_at: datetime | None = None
    # How long instances worked in the attempts that have ended, and since when they work in the live one.
    time_worked: timedelta = timedelta()
    working_since: datetime | None = None
    instance_types: Mapping[str, int] = field(default_factory=dict)
    is_spot: bool = False
    is_queued: bool = False
    engine: str = ""
    image: str = ""
    interruptions: int = 0
    # The first line of what went wrong, without the words that SageMaker puts around it.
    failure: str = ""
    # The tuning job that a training job is a trial of.
    tuning_job: str = ""
    # A tuning job's objective, and the direction in which it is better.
    objective: str = ""
    direction: str = ""
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, MetricSummary] = field(default_factory=dict)

    @property
    def instance_count(self) -> int:
        return sum(self.instance_types.values())

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    def time_used(self, now: datetime) -> timedelta:
        """Return how long instances have worked on the job until now; whole seconds once it has ended, as billed."""
        if self.is_final:
            return timedelta(seconds=math.ceil(self.time_worked / timedelta(seconds=1)))
        return self.time_worked + (now - self.working_since if self.working_since else timedelta())


class JobSummaries:
    """The summaries of jobs that were listed lately. Safe to share between threads."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self._max_kept = max_kept
        self._lock = threading.Lock()
        self._known: dict[ResourceId, JobSummary] = {}

    def count_unknown(self, revisions: Sequence[ResourceRevision]) -> int:
        """Return how many of these jobs would have to be read from the records."""
        return sum(1 for each in revisions if self._find(each) is None)

    def load(self, records: Records, revisions: Sequence[ResourceRevision]) -> list[JobSummary]:
        """Return the summaries of these jobs in the same order. Those that were deleted since are left out."""
        found = {each.id: known for each in revisions if (known := self._find(each)) is not None}
        missing = [each.id for each in revisions if each.id not in found]
        for first in range(0, len(missing), 500):
            loaded = map(summary_of, records.load_many(missing[first : first + 500]))
            found.update((each.id, each) for each in loaded)
        if missing:
            self._keep(found[each] for each in missing if each in found)
        return [found[each.id] for each in revisions if each.id in found]

    def _find(self, wanted: ResourceRevision) -> JobSummary | None:
        known = self._known.get(wanted.id)
        return known if known is not None and known.revision == wanted.revision else None

    def _keep(self, summaries: Iterator[JobSummary]) -> None:
        with self._lock:
            for each in summaries:
                # Entered again at the end, so that those that nobody asked for come first.
                self._known.pop(each.id, None)
                self._known[each.id] = each
            for oldest in list(self._known)[: max(0, len(self._known) - self._max_kept)]:
                del self._known[oldest]


def summary_of(resource: Resource) -> JobSummary:
    """Return the summary of a job. It reads the stored members themselves: a whole job takes five times as long."""
    return _SUMMARIES[resource.key.kind](resource)


def _instance_summary(resource: Resource, kind: SummaryKind) -> JobSummary:
    plain: Mapping[str, Any] = resource.body["job"]
    plan, transitions = plain["plan"], plain["transitions"]
    attempts = plain.get("attempts", ())
    last = transitions[-1]
    status = PRIMARY[SecondaryStatus(last["status"])]
    is_final = status in FINAL
    live = attempts[-1] if attempts and "ended_at" not in attempts[-1] and not is_final else None
    ended_us = last["started_at"] if is_final else None
    return JobSummary(
        resource.id,
        kind,
        resource.key.account,
        resource.key.name,
        plain["name"],
        plain["arn"],
        str(status),
        sys.intern(last["status"]),
        last["message"],
        resource.created_at,
        resource.modified_at,
        resource.revision,
        started_at=_moment(next(iter(_working_steps(transitions)), None)),
        ended_at=_moment(ended_us),
        time_worked=timedelta(microseconds=sum(_worked_us(each, transitions, ended_us) for each in attempts)),
        working_since=_moment(_began_us(live, transitions)) if live else None,
        instance_types=_instance_types(plan),
        is_spot=plan.get("is_spot", False),
        is_queued=status == "InProgress" and (not attempts or "ended_at" in attempts[-1]),
        engine=sys.intern(plan.get("engine", "")),
        image=sys.intern(plan["image"]),
        interruptions=sum(1 for each in attempts if each.get("interruption")),
        failure=_failure(plain),
        tuning_job=resource.body["request"].get("TuningJobArn", "").rpartition("/")[2],
        hyperparameters=_hyperparameters(plan),
        metrics=_metrics(attempts),
    )


def _tuning_summary(resource: Resource) -> JobSummary:
    job = tuning.job_of(resource)
    objective = job.plan.definitions[0].objective
    return JobSummary(
        resource.id,
        SummaryKind.TUNING,
        resource.key.account,
        resource.key.name,
        job.name,
        job.arn,
        str(job.status),
        str(job.status),
        job.stop_reason,
        resource.created_at,
        resource.modified_at,
        resource.revision,
        started_at=job.created_at,
        ended_at=job.ended_at,
        failure=job.failure.partition("\n")[0][:300],
        objective=objective.metric,
        direction=str(objective.direction),
    )


_SUMMARIES: Mapping[str, Callable[[Resource], JobSummary]] = {
    training.KIND: partial(_instance_summary, kind=SummaryKind.TRAINING),
    processing.KIND: partial(_instance_summary, kind=SummaryKind.PROCESSING),
    tuning.KIND: _tuning_summary,
}


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _working_steps(transitions: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    return (step["started_at"] for step in transitions if step["status"] in ON_INSTANCES)


def _began_us(attempt: Mapping[str, Any], transitions: Sequence[Mapping[str, Any]]) -> int | None:
    """Return when the instances of an attempt began to work; None if they did not. See TrainingJob.time_of."""
    return next((at for at in _working_steps(transitions) if at >= attempt["placed_at"]), None)


def _worked_us(attempt: Mapping[str, Any], transitions: Sequence[Mapping[str, Any]], ended_us: int | None) -> int:
    began_us, until_us = _began_us(attempt, transitions), attempt.get("ended_at", ended_us)
    return 0 if began_us is None or until_us is None else max(0, until_us - began_us)


def _instance_types(plan: Mapping[str, Any]) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for group in plan.get("groups") or ({"instance_type": plan["instance_type"], "count": plan["instance_count"]},):
        counts[sys.intern(group["instance_type"])] += group["count"]
    return counts


def _failure(plain: Mapping[str, Any]) -> str:
    cause: str = plain.get("card", {}).get("summary") or plain.get("failure", "")
    return cause.partition("\n")[0][:300]


def _hyperparameters(plan: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the hyperparameters that users set; those of the SDKs begin with sagemaker_."""
    given = plan.get("hyperparameters", {})
    own = (name for name in given if not name.startswith("sagemaker_"))
    return {sys.intern(name): unquote_text(given[name]) for name, _ in zip(own, range(_MAX_NAMES), strict=False)}


def unquote_text(value: str) -> str:
    """Return a hyperparameter without the JSON quotes that the sagemaker SDK puts around text."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' and "\\" not in value else value


def _metrics(attempts: Sequence[Mapping[str, Any]]) -> Mapping[str, MetricSummary]:
    parts = [each["metrics"] for attempt in attempts for each in attempt["instances"] if each.get("metrics")]
    merged = merge_metrics(
        {sys.intern(name): from_plain(MetricSummary, plain) for name, plain in part.items()} for part in parts
    )
    return dict(list(merged.items())[:_MAX_NAMES]) if len(merged) > _MAX_NAMES else merged
