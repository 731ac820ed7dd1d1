"""The values of a training job: what was asked for, how far it has come, and what came of it.

They know neither the words of the wire nor where anything is kept. `transitions.py` says how a job moves on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice

from trainyard.foundation.launch_kinds import LaunchKind
from trainyard.foundation.rule_status import RuleStatus


class Status(StrEnum):
    """Where a job stands, in one word; never goes backwards."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


class SecondaryStatus(StrEnum):
    """What happens to a job at the moment."""

    PENDING = "Pending"
    STARTING = "Starting"
    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    UPLOADING = "Uploading"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_TIME_EXCEEDED = "MaxWaitTimeExceeded"
    INTERRUPTED = "Interrupted"
    RESTARTING = "Restarting"


@dataclass(frozen=True, slots=True)
class Transition:
    """One secondary status of a job's history; the last one of a job that goes on has no end."""

    status: SecondaryStatus
    started_at: datetime
    message: str
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """The instances of one type."""

    name: str
    instance_type: str
    count: int


ONLY_GROUP = "homogeneousCluster"  # what AWS calls the group of a job whose instances are all of one type


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """One input channel: which objects, and how the instances share them.

    The objects are those whose keys begin as `uri` says or, for a manifest, those that the object at `uri` lists.
    """

    name: str
    uri: str
    is_manifest: bool = False
    is_sharded: bool = False  # each instance gets some of the objects, otherwise all
    shuffle_seed: int | None = None
    content_type: str | None = None
    mode: str = "File"
    record_wrapper: str = "None"
    compression: str = "None"
    attributes: tuple[str, ...] = ()  # of an augmented manifest
    file_system: str = ""  # id of a file system, instead of `uri`
    directory: str = ""  # in that file system
    is_writable: bool = True  # of a file system
    groups: tuple[str, ...] = ()  # of the instances that have it; empty is all


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    name: str
    regex: str


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Which processes run on each instance. `processes` is how many; None is one for each GPU, or one without.

    Instances of other groups than `groups`, if any are named, run one process that is not of the others.
    """

    kind: LaunchKind = LaunchKind.SINGLE
    processes: int | None = None
    groups: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # for mpirun
    variables: Mapping[str, str] = field(default_factory=dict)  # that the options set


@dataclass(frozen=True, slots=True)
class RulePlan:
    """A rule that judges a job: one of ours by its word, or a class of the file at `source`.

    `actions` are what shall be done when it finds something: each has a `name`, and what that needs.
    """

    name: str  # unique in the job
    rule: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    actions: tuple[Mapping[str, str], ...] = ()
    source: str = ""  # s3://bucket/key
    is_dry: bool = False  # what would be done is told, and not done
    is_beside: bool = False  # whether one of ours is judged beside the program; one of a user's always is


@dataclass(frozen=True, slots=True)
class DebuggerPlan:
    """What is captured of a job's tensors and judged; `hook` is the content of debughookconfig.json."""

    hook: Mapping[str, object]
    uri: str  # under which the tensors are kept
    path: str  # where the program has them
    rules: tuple[RulePlan, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What to run, on what, with what. After the create only `keep_alive_s` ever changes, when the user asks for it.

    Where there are several groups, `instance_type` is that of the first, and `instance_count` is that of all.
    """

    image: str
    instance_type: str
    instance_count: int
    role: str  # the name of the role that the job's credentials speak as
    output_path: str  # s3://bucket/prefix
    entry_point: str = ""  # of the code at `submit_directory`
    submit_directory: str = ""
    command: tuple[str, ...] = ()  # instead of an entry point
    arguments: tuple[str, ...] = ()  # where the image really runs: of its own entry point, instead of `train`
    launch: LaunchPlan = LaunchPlan()
    is_isolated: bool = False  # whether it reaches nothing but its own instances
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    channels: tuple[ChannelPlan, ...] = ()
    metrics: tuple[MetricDefinition, ...] = ()
    max_runtime_s: int = 86400
    max_pending_s: int | None = None  # how long it may wait for room; None is for ever
    retries: int = 0  # how often it is started again after a failure that was not its own
    is_spot: bool = False  # gives way to jobs that are not
    max_wait_s: int | None = None  # of a spot job: for waiting and running together
    billed_share: float = 1.0  # of its time: the price of its instances over what they cost on demand
    checkpoint_uri: str = ""
    checkpoint_path: str = ""  # as the program sees it
    tensorboard_uri: str = ""
    tensorboard_path: str = ""  # as the program sees it
    keep_alive_s: int = 0  # how long its warm workers are kept after it
    pool_key: str = ""  # the same for jobs of which one can take over what another has kept warm
    groups: tuple[InstanceGroup, ...] = ()  # empty where all instances are of one type
    debugger: DebuggerPlan | None = None  # None captures nothing
    engine: str = ""  # which of the yard's engines runs it; empty is the first
    is_spread: bool = False  # each instance on a node of its own

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names by which the instances know each other."""
        return tuple(f"algo-{number}" for number in range(1, self.instance_count + 1))

    @property
    def hosts_by_group(self) -> Mapping[InstanceGroup, tuple[str, ...]]:
        """The hosts of each group, which are numbered through all groups."""
        found, hosts = {}, iter(self.hosts)
        for group in self.groups or (InstanceGroup(ONLY_GROUP, self.instance_type, self.instance_count),):
            found[group] = tuple(islice(hosts, group.count))
        return found

    @property
    def instance_types(self) -> tuple[str, ...]:
        """The type of each host."""
        return tuple(group.instance_type for group, hosts in self.hosts_by_group.items() for _ in hosts)

    def group_of(self, host: str) -> InstanceGroup:
        return next(group for group, hosts in self.hosts_by_group.items() if host in hosts)

    def hosts_of(self, channel: ChannelPlan) -> tuple[str, ...]:
        """The hosts that have a channel."""
        groups = self.hosts_by_group.items()
        return tuple(
            host for group, hosts in groups for host in hosts if group.name in (channel.groups or (group.name,))
        )


class Outcome(StrEnum):
    """How an instance ended; LOST is one whose agent died before it could tell."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of an instance's time, for the waterfall."""

    name: str
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """The newest value of a metric and how many there were."""

    value: float
    at: datetime
    count: int
    has_lapsed: bool = False  # what came last was no finite number; where nothing else ever came, the count is 0


@dataclass(frozen=True, slots=True)
class RuleState:
    """How a rule stands: as one instance tells it, or in the job as a whole. `findings` are the first ones, as told."""

    name: str
    status: RuleStatus
    at: datetime
    details: str = ""
    judged: int = 0  # steps
    dropped: int = 0
    findings: tuple[Mapping[str, object], ...] = ()
    stops: bool = False  # an instance on a node cannot stop the others by itself


@dataclass(frozen=True, slots=True)
class Share:
    """What of which node an instance was given; None is not limited."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: tuple[int, ...] = ()
    node: str = ""  # empty on the yard's own machine


@dataclass(frozen=True, slots=True)
class InstanceState:
    """How far one instance has come, as its reports tell. `cursor` is where in its spool the next one begins."""

    name: str
    share: Share = Share()
    cursor: int = 0
    status: SecondaryStatus | None = None
    phases: tuple[Phase, ...] = ()
    metrics: Mapping[str, MetricSummary] = field(default_factory=dict)
    rules: Mapping[str, RuleState] = field(default_factory=dict)  # as it judged the job
    exit_code: int | None = None
    exit_signal: int | None = None
    is_oom: bool = False
    outcome: Outcome | None = None
    reason: str = ""
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        return self.outcome is not None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One time that the instances of a job were placed and started.

    It is remembered before anything of it exists outside, so that whatever was made can be found and ended. `failure`
    and `card` are those of one that was not the last because the job was tried again; `interruption` is why a spot job
    had to give its place away.
    """

    number: int
    placed_at: datetime
    key_id: str  # of its temporary credentials
    instances: tuple[InstanceState, ...]
    is_started: bool = False  # the engine said that all agents run
    told: str = ""  # the last command that the instances were given: stop or kill
    told_at: datetime | None = None
    site: str = ""  # which of several yards on one database has placed it; only that one can reach its instances
    ended_at: datetime | None = None
    failure: str = ""
    card: Mapping[str, object] = field(default_factory=dict)
    interruption: str = ""

    @property
    def metrics(self) -> Mapping[str, MetricSummary]:
        """The newest value of each metric over all instances."""
        return _merged(instance.metrics for instance in self.instances)

    def instance(self, name: str) -> InstanceState:
        return next(instance for instance in self.instances if instance.name == name)

    def with_instance(self, changed: InstanceState) -> "Attempt":
        instances = (changed if instance.name == changed.name else instance for instance in self.instances)
        return replace(self, instances=tuple(instances))


@dataclass(frozen=True, slots=True)
class Artifact:
    uri: str
    size: int


@dataclass(frozen=True, slots=True)
class PoolEnd:
    """When what a job had left warm ceased to be its own before its time was over, and which job took it, if any."""

    at: datetime
    reused_by: str = ""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job as it is remembered.

    `failure` is the whole reason, however long; `notes` are sentences for the user: what is not enforced here, what was
    substituted.
    """

    name: str
    arn: str
    account: str
    region: str
    plan: TrainingPlan
    created_at: datetime
    transitions: tuple[Transition, ...]
    attempts: tuple[Attempt, ...] = ()
    site: str = ""  # of the yard that has its data, where there are several on one database
    stop_reason: str = ""  # why the job is asked to end early; empty as long as nobody did
    failure: str = ""
    card: Mapping[str, object] = field(default_factory=dict)  # the failure card of the first instance that failed
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pool_end: PoolEnd | None = None

    @property
    def secondary(self) -> SecondaryStatus:
        return self.transitions[-1].status

    @property
    def status(self) -> Status:
        return PRIMARY[self.secondary]

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def attempt(self) -> Attempt | None:
        """The one that goes on."""
        return self.attempts[-1] if self.attempts and self.attempts[-1].ended_at is None else None

    @property
    def training_started_at(self) -> datetime | None:
        return next((step.started_at for step in self.transitions if step.status in ON_INSTANCES), None)

    @property
    def ended_at(self) -> datetime | None:
        return self.transitions[-1].started_at if self.is_final else None

    @property
    def training_time(self) -> timedelta | None:
        """How long instances worked on it in all attempts; None when they never did, or still do."""
        return self.time_used if self.training_started_at is not None and self.is_final else None

    @property
    def time_used(self) -> timedelta:
        """How long instances worked on it in the attempts that have ended."""
        return sum(map(self.time_of, self.attempts), timedelta())

    @property
    def retries_used(self) -> int:
        """How often it was tried again after an attempt that failed through no fault of its own."""
        return sum(1 for attempt in self.attempts if attempt.failure)

    @property
    def waits_until(self) -> datetime | None:
        """When a job that has not been placed gives up; None when it does not."""
        if self.plan.max_pending_s is None or self.attempts or self.is_final:
            return None
        return self.created_at + timedelta(seconds=self.plan.max_pending_s)

    @property
    def ends_until(self) -> datetime | None:
        """When a spot job must have ended, however long it waited and ran; None when there is no such limit."""
        if self.plan.max_wait_s is None or self.is_final:
            return None
        return self.created_at + timedelta(seconds=self.plan.max_wait_s)

    @property
    def metrics(self) -> Mapping[str, MetricSummary]:
        """The newest value of each metric over all instances of all attempts."""
        return _merged(attempt.metrics for attempt in self.attempts)

    def time_of(self, attempt: Attempt) -> timedelta:
        """How long instances worked in an attempt that has ended."""
        ended_at = attempt.ended_at or self.ended_at
        steps = (step.started_at for step in self.transitions if step.status in ON_INSTANCES)
        began_at = next((at for at in steps if at >= attempt.placed_at), None)
        if began_at is None or ended_at is None or began_at > ended_at:
            return timedelta()
        return ended_at - began_at

    def with_attempt(self, attempt: Attempt) -> "TrainingJob":
        """The job with its last attempt replaced."""
        return replace(self, attempts=(*self.attempts[:-1], attempt))

    def noted(self, *notes: str) -> "TrainingJob":
        """The job with these notes, each told once."""
        return replace(self, notes=tuple(dict.fromkeys((*self.notes, *notes))))


PRIMARY: Mapping[SecondaryStatus, Status] = {
    SecondaryStatus.PENDING: Status.IN_PROGRESS,
    SecondaryStatus.STARTING: Status.IN_PROGRESS,
    SecondaryStatus.DOWNLOADING: Status.IN_PROGRESS,
    SecondaryStatus.TRAINING: Status.IN_PROGRESS,
    SecondaryStatus.UPLOADING: Status.IN_PROGRESS,
    SecondaryStatus.INTERRUPTED: Status.IN_PROGRESS,
    SecondaryStatus.RESTARTING: Status.IN_PROGRESS,
    SecondaryStatus.STOPPING: Status.STOPPING,
    SecondaryStatus.COMPLETED: Status.COMPLETED,
    SecondaryStatus.FAILED: Status.FAILED,
    SecondaryStatus.STOPPED: Status.STOPPED,
    SecondaryStatus.MAX_RUNTIME_EXCEEDED: Status.STOPPED,
    SecondaryStatus.MAX_WAIT_TIME_EXCEEDED: Status.STOPPED,
}
FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.STOPPED})
ON_INSTANCES = frozenset({SecondaryStatus.DOWNLOADING, SecondaryStatus.TRAINING})


def _merged(parts: Iterable[Mapping[str, MetricSummary]]) -> dict[str, MetricSummary]:
    """The newest of each name, with the counts of all."""
    found: dict[str, MetricSummary] = {}
    for name, summary in (entry for part in parts for entry in part.items()):
        known = found.get(name)
        newest = summary if known is None else max(known, summary, key=lambda each: each.at)
        found[name] = newest if known is None else replace(newest, count=known.count + summary.count)
    return found
