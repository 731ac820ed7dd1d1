"""What the yard tells an agent, and what the agent reports.

The yard writes one `InstanceSpec` into the instance's folder and starts an agent on it. From then on they communicate
through two append-only places in that folder: the agent appends `Frame`s to its spool, which is the source of truth,
and the yard puts numbered `Command`s into the mailbox. Either side may be killed at any moment and continues from what
is there.

Everything here is plain JSON on disk. `PROTOCOL` increases with every change; a yard supports the last two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

PROTOCOL = 7

# The reason of a stop after which another attempt continues, so nothing is uploaded.
INTERRUPTED = "interrupted"
# The reason of a stop because the lease expired: nothing is uploaded, and there is no last frame.
LEASE = "lease"
# The default size of the cache for a remote S3.
CACHE_BYTES = 10 * 1024**3
# The url of objects that the yard itself serves.
SERVED = "s3://"
# The default size of the environment cache of one user.
ENVIRONMENTS_BYTES = 20 * 1024**3


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """One input channel of one instance.

    `keys` are its objects, in order, under the common `prefix`; if the channel is resharded in each epoch, those of
    all instances. `etags` and `sizes` are theirs if a listing provided them, otherwise empty. A channel of a file
    system has instead a `directory`, relative to a `folder` of this machine, which it may never leave.

    `part` is this instance's share of `parts` if the channel is sharded. With `record_wrapper` "RecordIO", a Pipe
    yields each object as one record; with `compression` "Gzip", decompressed; with a `shuffle_seed`, in another order
    in each epoch. `attributes` are those of the lines of an augmented manifest, which `keys` names. `is_writable` says
    whether the program may change the folder, or the files of a File channel. `path` is where the program sees the
    channel; empty is the folder of its name in /opt/ml/input/data. `cache` is the folder that caches data of
    a remote S3 for later jobs; empty for none.
    """

    name: str
    mode: str  # File, Pipe, FastFile
    bucket: str
    prefix: str
    keys: Sequence[str] = ()
    etags: Sequence[str] = ()
    sizes: Sequence[int] = ()
    content_type: str | None = None
    record_wrapper: str = "None"
    distribution: str = "FullyReplicated"
    part: int = 0
    parts: int = 1
    compression: str = "None"
    shuffle_seed: int | None = None
    attributes: Sequence[str] = ()
    folder: str = ""
    directory: str = ""
    is_writable: bool = True
    cache: str = ""
    path: str = ""

    @property
    def is_resharded_each_epoch(self) -> bool:
        """Whether an object of this instance may go to another instance in the next epoch."""
        return self.distribution == "ShardedByS3Key" and self.mode == "Pipe" and self.shuffle_seed is not None


@dataclass(frozen=True, slots=True)
class ObjectsSpec:
    """Where the yard keeps its objects: in a folder of this machine, or in an S3 if there is a `url` (s3://bucket/prefix).

    With an S3, `folder` is where bodies are collected before they are uploaded. If the yard itself is that S3 and
    serves its buckets under their own names, the url is SERVED. An empty `endpoint` is Amazon's; without an
    `access_key_id`, the usual AWS sources are used. `cache_bytes` limits the cache for files of a remote S3.
    `reserve_bytes` of the disk stay free for the yard's own records; 0 stands for a twentieth of it, at most 1 GiB.
    `keys` is the folder of the encryption keys for objects in a folder, and `master_key_file` the file that unlocks
    them; empty means the usual places.
    """

    folder: str
    url: str = ""
    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""
    cache_bytes: int = CACHE_BYTES
    reserve_bytes: int = 0
    keys: str = ""
    master_key_file: str = ""


@dataclass(frozen=True, slots=True)
class SyncSpec:
    """A folder, by the path that the program sees, that is synced to an S3 location while the program runs."""

    uri: str
    path: str


@dataclass(frozen=True, slots=True)
class MetricSpec:
    name: str
    regex: str


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """What to run: an entry point of user code, or a command line.

    In script mode, `submit_directory` is the S3 location of the code (a tar.gz) and `entry_point` the file in it.
    Otherwise `command` runs as it is. `interpreter` is the absolute path of the Python that the image maps to.
    """

    entry_point: str = ""
    submit_directory: str = ""
    command: Sequence[str] = ()
    interpreter: str = ""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How the program is launched: as one process per instance, or as the number of ranks in `processes` for its host.

    `processes` is in the order of the hosts' ranks. An instance that is not in it runs one process that is not part of
    the others. `options` are for mpirun, if there is a real one, and `variables` are those that the options set.
    """

    kind: str = "single"  # a value of LaunchKind
    processes: Mapping[str, int] = field(default_factory=dict)
    options: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The instances of one type in a job of several types."""

    name: str
    instance_type: str
    hosts: Sequence[str]


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """The share of the machine that the instance gets. None means no limit."""

    cpus: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    gpus: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """A rule that evaluates the tensors of the job: a built-in one by name, or a class in the user's file.

    `name` is that of its configuration, unique in the job. `rule` is VanishingGradient …, or the class in `source`, the
    S3 location of a custom rule. `actions` say what to do when it finds something, each with its `name` and arguments;
    the agent carries out those that stop the program, the yard all others. If `is_dry`, actions are only reported.
    `is_beside` says whether a built-in rule is evaluated in a process next to the program, as custom rules always are.
    """

    name: str
    rule: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    actions: Sequence[Mapping[str, str]] = ()
    source: str = ""
    is_dry: bool = False
    is_beside: bool = False


@dataclass(frozen=True, slots=True)
class DebuggerSpec:
    """Which tensors of the program are captured, where they go, and which rules evaluate them.

    `hook` is the content of debughookconfig.json, in AWS's terms. The folder of `tensors` is synced to its location.
    """

    hook: Mapping[str, Any]
    tensors: SyncSpec
    rules: Sequence[RuleSpec] = ()


@dataclass(frozen=True, slots=True)
class ProfilerSpec:
    """How the hardware is sampled, what the hook profiles, and the rules that read both.

    `output` is the folder of profiles that the program writes, and where on S3 it is stored. `is_exported` says whether
    hardware samples are stored there too, in AWS's format. `parameters` are ProfilingParameters in AWS's terms.
    """

    output: SyncSpec
    interval_ms: int = 1000
    is_exported: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    rules: Sequence[RuleSpec] = ()
    # Otherwise nothing is sampled or profiled until a command enables it.
    is_enabled: bool = True


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """A folder, by the path that the program sees, whose files are stored under an S3 location.

    They are stored when the program has ended, however it ended, or also while it runs if `is_continuous`.
    """

    name: str
    uri: str
    path: str
    is_continuous: bool = False


@dataclass(frozen=True, slots=True)
class ProcessingSpec:
    """What makes a job a processing job: its program has outputs and a message instead of a model."""

    outputs: Sequence[OutputSpec] = ()


@dataclass(frozen=True, slots=True)
class WarmSpec:
    """The folder of the warm workers of the job's user, and how long one is kept after its last job."""

    folder: str
    keep_s: int


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """The container image in which the program runs, and the tool that runs it: podman or docker, by name or path.

    `image` is the name that the tool knows. `options` are those that `run` needs on this machine, `limits` those that
    the tool enforces here. `entrypoint` replaces the image's; together with `arguments`, see ContainerEntrypoint.
    """

    image: str
    tool: str = "podman"
    options: Sequence[str] = ()
    limits: Sequence[str] = ("cpu", "memory", "pids")
    entrypoint: Sequence[str] = ()
    arguments: Sequence[str] = ("train",)


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """Everything that an agent needs to know about its instance. Times are whole seconds."""

    protocol: int
    job_id: str
    job_name: str
    job_arn: str
    account: str
    region: str
    attempt: int
    instance: str  # algo-1 …
    hosts: Sequence[str]
    instance_type: str
    instance_group: str
    program: ProgramSpec
    hyperparameters: Mapping[str, str]
    environment: Mapping[str, str]
    channels: Sequence[ChannelSpec]
    # The S3 location under which the results are uploaded, see foundation/jobs/result_locations.py.
    output_path: str
    metrics: Sequence[MetricSpec]
    limits: LimitSpec
    objects: ObjectsSpec
    grace_s: int = 120
    max_runtime_s: int = 86400
    # Without output and CPU time for this long, stacks are recorded; 0 for never.
    hang_after_s: int = 600
    # The uid of the job's user, if the yard runs as root.
    uid: int | None = None
    launch: LaunchSpec = field(default_factory=LaunchSpec)
    # Empty if all instances have the same type.
    groups: Sequence[GroupSpec] = ()
    # A port on the first host that no other job of the machine uses; 0 until one is chosen.
    master_port: int = 0
    # An isolated instance reaches only the other instances of its job.
    is_isolated: bool = False
    # Only the first instance uploads, including the results of the others.
    uploads: bool = True
    log_limit_bytes: int = 10 * 1024**3
    # Paths of the machine that the job must not see: the yard's home, users' homes.
    hidden: Sequence[str] = ()
    # Absolute paths outside /opt/ml that the job may write, such as /state.
    extra_paths: Sequence[str] = ()
    # The folder of the user's cached environments; empty for no cache. The least recently used are removed first.
    environments: str = ""
    environments_limit_bytes: int = ENVIRONMENTS_BYTES
    # The first lines of the log: what was used instead of what was asked for.
    notes: Sequence[str] = ()
    # Restored before the program starts.
    checkpoint: SyncSpec | None = None
    tensorboard: SyncSpec | None = None
    # None captures nothing.
    debugger: DebuggerSpec | None = None
    # None profiles nothing and never will, as for specs of earlier versions.
    profiler: ProfilerSpec | None = None
    # None starts every program cold.
    warm: WarmSpec | None = None
    # Empty on the yard's own machine.
    node: str = ""
    # The addresses of the hosts; empty if all run on one machine.
    addresses: Sequence[str] = ()
    # Nothing of the instance may run after this long without hearing from the yard; 0 for no limit.
    lease_s: int = 0
    # None runs the program in the environment of its interpreter.
    container: ContainerSpec | None = None
    # The request of the job, in the words of the API, with its tags. Files for the program repeat it.
    request: Mapping[str, Any] = field(default_factory=dict)
    # Without compression, results are uploaded as one object for each file instead of one archive.
    is_output_compressed: bool = True
    # Where the agent rings after a report that the yard waits for; empty if nobody listens.
    doorbell: str = ""
    # The ARN of the key that encrypts what the job stores; empty means as the buckets do.
    output_key: str = ""
    # None for a training job.
    processing: ProcessingSpec | None = None


class FrameKind(StrEnum):
    """What an agent reports. The comments list the members of each payload."""

    PHASE = "phase"  # name: queue|sandbox|environment|download|import|train|process|upload…, started_us, ended_us
    STATUS = "status"  # status: Downloading|Training|Processing|Uploading, message
    DOWNLOAD = "download"  # done_bytes, total_bytes: how much of its data an instance has, during long downloads
    NOTE = "note"  # text: what a user should know: what is not enforced, what was substituted
    # name, value, at_us, count, lowest, highest: the latest value of a metric, the number of values and their range;
    # has_lapsed, see MetricSummary
    METRIC = "metric"
    # rule, status, details, finding (or None), judged, dropped: the state of a rule, whenever it changes; stops, if the
    # yard has to stop all instances because of it now
    RULE = "rule"
    # metrics: the names of the CloudWatch metrics of the host that have points, whenever there are more
    HARDWARE = "hardware"
    # packages: the installed packages that the program sees, such as numpy==2.4.6; from the first instance only
    ENVIRONMENT = "environment"
    EXITED = "exited"  # code, signal, is_oom: how the program ended
    ARTIFACT = "artifact"  # kind: model|output, uri (of an archive, or a prefix that ends with a slash), size
    # outcome: completed|failed|stopped, reason, card (the failure card), message (that a program of a processing job
    # left); the last frame of all
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Frame:
    """One report. The sequence of an instance starts at 1 and has no gaps."""

    sequence: int
    kind: FrameKind
    at_us: int
    payload: Mapping[str, Any] = field(default_factory=dict)


class CommandKind(StrEnum):
    STOP = "stop"  # reason: user|max_runtime|interrupted…; SIGTERM, grace period, SIGKILL, then upload
    KILL = "kill"  # SIGKILL at once; only existing checkpoints are uploaded, within seconds
    # Changes how the running program is profiled: is_enabled, interval_ms, is_exported, uri (of the output),
    # parameters; what is left out stays as it is. With steps, asks the hook to profile the next ones once.
    PROFILE = "profile"


@dataclass(frozen=True, slots=True)
class Command:
    number: int
    kind: CommandKind
    payload: Mapping[str, Any] = field(default_factory=dict)
