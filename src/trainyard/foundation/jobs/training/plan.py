"""The plan of a training job: on which instances it runs, with which program, data and rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from trainyard.foundation.jobs.channels import ChannelPlan
from trainyard.foundation.jobs.launch_kinds import LaunchKind


@dataclass(frozen=True, slots=True)
class InstanceGroupPlan:
    """The instances of one type."""

    name: str
    instance_type: str
    count: int


# What AWS calls the group of a job whose instances all have one type.
ONLY_GROUP = "homogeneousCluster"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    name: str
    regex: str


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Which processes run on each instance. `processes` is how many; None means one per GPU, or one without GPUs.

    If `groups` names some groups, instances of other groups run one process that is not part of the launch.
    """

    kind: LaunchKind = LaunchKind.SINGLE
    processes: int | None = None
    groups: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # for mpirun
    variables: Mapping[str, str] = field(default_factory=dict)  # that the options set


@dataclass(frozen=True, slots=True)
class RulePlan:
    """A rule that watches a job: a built-in one by its name, or a class in the file at `source`.

    `actions` are carried out when the rule finds an issue. Each has a `name` and the parameters of that action.
    """

    name: str  # unique in the job
    rule: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    actions: tuple[Mapping[str, str], ...] = ()
    source: str = ""  # s3://bucket/key
    is_dry: bool = False  # actions are reported but not carried out
    # A built-in rule runs in a process beside the program instead of inside it. Custom rules always do.
    is_beside: bool = False
    # Of a profiler rule: where its own results are stored, if not under the output path of the job.
    output_path: str = ""


@dataclass(frozen=True, slots=True)
class DebuggerPlan:
    """The tensors to capture and the rules that read them. `hook` is the content of debughookconfig.json."""

    hook: Mapping[str, object]
    uri: str  # where the tensors are stored
    path: str  # where the program writes them
    rules: tuple[RulePlan, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfilerPlan:
    """How a job is profiled: how often its hardware is sampled, what is stored where, and the rules that read it.

    `version` counts the changes since the create, which running instances are sent.
    """

    uri: str  # where profiles are stored: <S3OutputPath>/<job>/profiler-output
    path: str = "/opt/ml/output/profiler"  # where the program writes them; never changes
    interval_ms: int = 1000
    # Whether hardware samples are stored on S3, in AWS's format. The yard keeps its own in any case.
    is_exported: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)  # ProfilingParameters
    rules: tuple[RulePlan, ...] = ()
    is_enabled: bool = True  # otherwise nothing is sampled or profiled, until an update call enables it
    version: int = 0


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What to run, on what, with what. After the create only `keep_alive_s` and `profiler` change, by an update call.

    With several groups, `instance_type` is that of the first group and `instance_count` counts all groups.
    """

    image: str
    instance_type: str
    instance_count: int
    role: str  # name of the role of the job's credentials
    output_path: str  # s3://bucket/prefix
    output_key: str = ""  # ARN of the key that encrypts what the job stores; empty means as the buckets do
    entry_point: str = ""  # in the code at `submit_directory`
    submit_directory: str = ""
    command: tuple[str, ...] = ()  # instead of an entry point
    # Of the image's own entry point instead of `train`, if the job runs in its image.
    arguments: tuple[str, ...] = ()
    launch: LaunchPlan = LaunchPlan()
    is_isolated: bool = False  # can reach only its own instances
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    channels: tuple[ChannelPlan, ...] = ()
    metrics: tuple[MetricDefinition, ...] = ()
    max_runtime_s: int = 86400
    max_pending_s: int | None = None  # waiting for capacity; None means no limit
    retries: int = 0  # after failures that are not its own
    is_spot: bool = False  # may be preempted by on-demand jobs
    max_wait_s: int | None = None  # of a spot job: waiting and running together
    billed_share: float = 1.0  # price of its instances over the on-demand price
    checkpoint_uri: str = ""
    checkpoint_path: str = ""  # as the program sees it
    tensorboard_uri: str = ""
    tensorboard_path: str = ""  # as the program sees it
    keep_alive_s: int = 0  # of its warm workers after its end
    pool_key: str = ""  # jobs with the same key can share a warm pool
    groups: tuple[InstanceGroupPlan, ...] = ()  # empty if all instances have one type
    debugger: DebuggerPlan | None = None
    profiler: ProfilerPlan | None = None  # None in jobs of earlier versions
    engine: str = ""  # empty means the default engine
    is_spread: bool = False  # each instance on its own node
    is_output_compressed: bool = True  # results are archives, not one object for each file

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names of the instances."""
        return tuple(f"algo-{number}" for number in range(1, self.instance_count + 1))

    @property
    def hosts_by_group(self) -> Mapping[InstanceGroupPlan, tuple[str, ...]]:
        """The hosts of each group. Numbers run through all groups."""
        found, hosts = {}, iter(self.hosts)
        for group in self.groups or (InstanceGroupPlan(ONLY_GROUP, self.instance_type, self.instance_count),):
            found[group] = tuple(islice(hosts, group.count))
        return found

    @property
    def instance_types(self) -> tuple[str, ...]:
        """The instance type of each host."""
        return tuple(group.instance_type for group, hosts in self.hosts_by_group.items() for _ in hosts)

    def group_of(self, host: str) -> InstanceGroupPlan:
        return next(group for group, hosts in self.hosts_by_group.items() if host in hosts)

    def hosts_of(self, channel: ChannelPlan) -> tuple[str, ...]:
        """Return the hosts that get a channel."""
        groups = self.hosts_by_group.items()
        return tuple(
            host for group, hosts in groups for host in hosts if group.name in (channel.groups or (group.name,))
        )
