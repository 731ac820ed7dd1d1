"""One attempt to run a job: its instances, what each was given, and how far each has come."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from trainyard.foundation.jobs.contents import SourceContent
from trainyard.foundation.jobs.status import RuleStatus, SecondaryStatus


class OutcomeKind(StrEnum):
    """How an instance ended. LOST means that its agent died before it could report."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class InstancePhase:
    """A span of an instance's time, for the waterfall."""

    name: str
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """The newest value of a metric, its range, and how many values there were."""

    value: float
    at: datetime
    count: int
    # The last value was not a finite number. If no finite one ever came, the count is 0.
    has_lapsed: bool = False
    # None for jobs of earlier versions, and if there was no finite value.
    lowest: float | None = None
    highest: float | None = None


@dataclass(frozen=True, slots=True)
class RuleState:
    """The state of a rule, as one instance reports it or in the whole job. `findings` has only the first ones."""

    name: str
    status: RuleStatus
    at: datetime
    details: str = ""
    judged: int = 0  # steps
    dropped: int = 0
    findings: tuple[Mapping[str, object], ...] = ()
    # The job should stop. An instance on another node cannot stop the others itself.
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """What an instance was given of a node; None means no limit."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: tuple[int, ...] = ()
    node: str = ""  # empty on the yard's own machine


@dataclass(frozen=True, slots=True)
class InstanceState:
    """How far one instance has come, from its reports. `cursor` is the offset of the next report in its spool."""

    name: str
    share: Share = Share()
    cursor: int = 0
    status: SecondaryStatus | None = None
    phases: tuple[InstancePhase, ...] = ()
    metrics: Mapping[str, MetricSummary] = field(default_factory=dict)
    rules: Mapping[str, RuleState] = field(default_factory=dict)
    # How much of its data it had when it last reported, during a long download.
    downloaded_bytes: int = 0
    download_bytes: int = 0
    exit_code: int | None = None
    exit_signal: int | None = None
    is_oom: bool = False
    outcome: OutcomeKind | None = None
    reason: str = ""
    ended_at: datetime | None = None
    # The digest of the packages that its program sees; empty if they are unknown.
    environment: str = ""
    # That the program left, if jobs of its kind can.
    message: str = ""

    @property
    def has_ended(self) -> bool:
        return self.outcome is not None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One time that the instances of a job were placed and started.

    It is stored before anything of it exists outside the records, so that everything it made can be found and ended.
    `failure` and `card` are set if the job was retried after this attempt. `interruption` says why a spot job had to
    give up its capacity.
    """

    number: int
    placed_at: datetime
    key_id: str  # of its temporary credentials
    instances: tuple[InstanceState, ...]
    is_started: bool = False  # all agents run
    # The last command that was sent to the instances: stop, interrupted or kill.
    told: str = ""
    told_at: datetime | None = None
    # Which of several yards on one database placed it. Only that yard can reach its instances.
    site: str = ""
    ended_at: datetime | None = None
    failure: str = ""
    card: Mapping[str, object] = field(default_factory=dict)
    interruption: str = ""
    # The version of the profiler's plan that the instances were sent last. They start with the plan of that moment.
    profiler_version: int = 0
    # The content of the channels that the instances were given. Known once the attempt is started.
    inputs: tuple[SourceContent, ...] = ()

    @property
    def metrics(self) -> Mapping[str, MetricSummary]:
        """The newest value of each metric, over all instances."""
        return merge_metrics(instance.metrics for instance in self.instances)

    def instance(self, name: str) -> InstanceState:
        return next(instance for instance in self.instances if instance.name == name)

    def with_instance(self, changed: InstanceState) -> "Attempt":
        instances = (changed if instance.name == changed.name else instance for instance in self.instances)
        return replace(self, instances=tuple(instances))


def merge_metrics(parts: Iterable[Mapping[str, MetricSummary]]) -> dict[str, MetricSummary]:
    """Return the newest summary of each metric, with all counts added up and over the range of all."""
    found: dict[str, MetricSummary] = {}
    for name, summary in (entry for part in parts for entry in part.items()):
        known = found.get(name)
        found[name] = summary if known is None else _merge_summaries(known, summary)
    return found


def _merge_summaries(one: MetricSummary, other: MetricSummary) -> MetricSummary:
    newest = max(one, other, key=lambda each: each.at)
    lows = [each.lowest for each in (one, other) if each.lowest is not None]
    highs = [each.highest for each in (one, other) if each.highest is not None]
    return replace(
        newest,
        count=one.count + other.count,
        lowest=min(lows, default=None),
        highest=max(highs, default=None),
    )
