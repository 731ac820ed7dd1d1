"""What the yard tells an agent, and what the agent reports.

The yard writes one `InstanceSpec` into the instance's folder and starts an agent on it. From then on they speak through
two append-only places in that folder: the agent appends `Frame`s to its spool, which is the truth, and the yard puts
numbered `Command`s into the mailbox. Either side may be killed at any moment and goes on from what lies there.

Everything here is plain JSON on disk. `PROTOCOL` is raised with every change; a yard understands the last two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

PROTOCOL = 5

INTERRUPTED = "interrupted"  # the reason of a stop after which another attempt goes on, so that nothing is uploaded
LEASE = "lease"  # the reason of a stop because the yard was not heard of; nothing is uploaded, and no last frame left
CACHE_BYTES = 10 * 1024**3  # what is kept on disk of a remote S3, unless it is set otherwise
SERVED = "s3://"  # the url of objects that the yard serves
ENVIRONMENTS_BYTES = 20 * 1024**3  # what the environments kept for one user may take, unless it is set otherwise


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """One input channel of one instance.

    `keys` are the objects it gets, in order, under the common `prefix`; where a listing told them, `etags` and `sizes`
    are theirs, and otherwise empty. Or it is the relative `directory` in a `folder` of this machine.
    """

    name: str
    mode: str  # File, Pipe, FastFile
    bucket: str
    prefix: str
    keys: Sequence[str] = ()  # where it is shared out anew in each epoch, those of all instances
    etags: Sequence[str] = ()
    sizes: Sequence[int] = ()
    content_type: str | None = None
    record_wrapper: str = "None"  # RecordIO: a Pipe gives each object as one record
    distribution: str = "FullyReplicated"
    part: int = 0  # which of the `parts` is this instance's where the channel is shared out
    parts: int = 1
    compression: str = "None"  # Gzip: a Pipe gives the objects unpacked
    shuffle_seed: int | None = None  # a Pipe gives the objects in another order in each epoch
    attributes: Sequence[str] = ()  # of the lines of an augmented manifest, which `keys` names; a Pipe gives each
    folder: str = ""
    directory: str = ""  # may never lead out of the folder
    is_writable: bool = True  # whether the program may change the folder, or the files of a File channel
    cache: str = ""  # the folder that keeps for later jobs what was read of a remote S3; empty keeps nothing

    @property
    def is_shared_out_anew(self) -> bool:
        """Whether an object that this instance gets in one epoch may go to another one in the next."""
        return self.distribution == "ShardedByS3Key" and self.mode == "Pipe" and self.shuffle_seed is not None


@dataclass(frozen=True, slots=True)
class ObjectsSpec:
    """Where the yard keeps its objects: in a folder of this machine, or in an S3 where there is a `url`.

    Of the S3 `folder` is where bodies are collected before they are sent. Where the yard itself is that S3 and serves
    its buckets under their own names, the url is SERVED.
    """

    folder: str
    url: str = ""  # s3://bucket/prefix
    endpoint: str = ""  # empty is Amazon's
    region: str = ""
    access_key_id: str = ""  # empty takes the usual AWS sources
    secret_access_key: str = ""
    session_token: str = ""
    cache_bytes: int = CACHE_BYTES  # of a disk that what is read as files of a remote S3 may take
    reserve_bytes: int = 0  # of a disk that stay free for the yard's own records; 0 is a twentieth, and at most 1 GiB


@dataclass(frozen=True, slots=True)
class SyncSpec:
    """A folder, by its path as the program sees it, that is kept under an S3 location while the program runs."""

    uri: str
    path: str


@dataclass(frozen=True, slots=True)
class MetricSpec:
    name: str
    regex: str


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """What to run: an entry point of user code, or a command line.

    In script mode `submit_directory` is the S3 location of the code (a tar.gz) and `entry_point` the file in it.
    Otherwise `command` is run as it stands.
    """

    entry_point: str = ""
    submit_directory: str = ""
    command: Sequence[str] = ()
    interpreter: str = ""  # absolute path of the Python of the environment that the image maps to


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How the program becomes processes: one on each instance, or as many ranks as `processes` has for its host.

    An instance that has none there runs one process that is not of the others.
    """

    kind: str = "single"  # a word of LaunchKind
    processes: Mapping[str, int] = field(default_factory=dict)  # in the order of the hosts' ranks
    options: Sequence[str] = ()  # for mpirun, where there is a real one
    variables: Mapping[str, str] = field(default_factory=dict)  # that such options set


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The instances of one type in a job of several types."""

    name: str
    instance_type: str
    hosts: Sequence[str]


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """The share of the machine that the instance gets; None is not limited."""

    cpus: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    gpus: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """A rule that judges the tensors of the job: one of ours by its word, or a class of the user's file.

    `actions` are what shall be done when it finds something, each with its `name` and what that needs; an agent carries
    out those that stop the program, the yard all others.
    """

    name: str  # of its configuration, unique in the job
    rule: str  # VanishingGradient …, or the class in `source`
    parameters: Mapping[str, str] = field(default_factory=dict)
    actions: Sequence[Mapping[str, str]] = ()
    source: str = ""  # S3 location of the file of a custom rule
    is_dry: bool = False  # actions are told, and not carried out
    is_beside: bool = False  # whether one of ours is judged beside the program; one of a user's always is


@dataclass(frozen=True, slots=True)
class DebuggerSpec:
    """What is captured of the program's tensors, where it goes, and what judges it.

    `hook` is the content of debughookconfig.json, in AWS's words. The folder of `tensors` is kept under its location.
    """

    hook: Mapping[str, Any]
    tensors: SyncSpec
    rules: Sequence[RuleSpec] = ()


@dataclass(frozen=True, slots=True)
class WarmSpec:
    """Where the warm workers of the job's user live on the machine, and how long one is kept after its last job."""

    folder: str
    keep_s: int


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """The image in which the program really runs, and the program that runs images."""

    image: str  # as `tool` knows it
    tool: str = "podman"  # or docker; an absolute path or a name
    options: Sequence[str] = ()  # for its `run`, that the machine needs
    limits: Sequence[str] = ("cpu", "memory", "pids")  # those that it enforces here
    entrypoint: Sequence[str] = ()  # instead of the image's; with `arguments`, see ContainerEntrypoint
    arguments: Sequence[str] = ("train",)


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """All an agent needs to know of its instance. Times are whole seconds."""

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
    output_path: str  # s3 location under which <job>/output/model.tar.gz is put
    metrics: Sequence[MetricSpec]
    limits: LimitSpec
    objects: ObjectsSpec
    grace_s: int = 120
    max_runtime_s: int = 86400
    hang_after_s: int = 600  # without output and processor time, after which stacks are taken; 0 is never
    uid: int | None = None  # of the job's user, where the yard runs as root
    launch: LaunchSpec = field(default_factory=LaunchSpec)
    groups: Sequence[GroupSpec] = ()  # empty where all instances are of one type
    master_port: int = 0  # on the first host, that no other job of the machine uses; 0 where nobody chose one
    is_isolated: bool = False  # whether it reaches nothing but the other instances
    uploads: bool = True  # only the first instance uploads, and what the others left too
    log_limit_bytes: int = 10 * 1024**3
    hidden: Sequence[str] = ()  # host paths the job must not see: the yard's home, users' homes
    extra_paths: Sequence[str] = ()  # absolute paths outside /opt/ml that the job may write, such as /state
    environments: str = ""  # folder of the user's environments that are kept between jobs; empty keeps none
    environments_limit_bytes: int = (
        ENVIRONMENTS_BYTES  # what those kept may take; the ones not used for longest go first
    )
    notes: Sequence[str] = ()  # what the log begins with: what was put in place of what was asked for
    checkpoint: SyncSpec | None = None  # restored before the program starts
    tensorboard: SyncSpec | None = None
    debugger: DebuggerSpec | None = None  # None captures nothing
    warm: WarmSpec | None = None  # None starts every program cold
    node: str = ""  # where it is placed; empty on the yard's own machine
    addresses: Sequence[str] = ()  # of the hosts; empty where they lie on one machine, which has some for all jobs
    lease_s: int = 0  # after which without a word of the yard nothing of it may run any more; 0 is for ever
    container: ContainerSpec | None = None  # None runs the program in the environment of its interpreter
    doorbell: str = ""  # where the agent rings when it has reported what the yard waits for; empty where nobody listens


class FrameKind(StrEnum):
    """What an agent reports. The payload's members stand beside each."""

    PHASE = "phase"  # name: queue|sandbox|environment|download|import|train|upload…, started_us, ended_us
    STATUS = "status"  # status: Downloading|Training|Uploading, message
    NOTE = "note"  # text: something a user should know: what is not enforced, what was substituted
    # name, value, at_us, count: the newest value of a metric and how many there were; has_lapsed, see MetricSummary
    METRIC = "metric"
    # rule, status, details, finding (or None), judged, dropped: how a rule stands, whenever that changes; stops, where
    # the yard has to stop all instances because of it, and now
    RULE = "rule"
    EXITED = "exited"  # code, signal, is_oom: how the program ended
    ARTIFACT = "artifact"  # kind: model|output, uri, size
    ENDED = "ended"  # outcome: completed|failed|stopped, reason, card: the failure card; the last frame of all


@dataclass(frozen=True, slots=True)
class Frame:
    """One report. Sequences of an attempt's instance start at 1 and have no gaps."""

    sequence: int
    kind: FrameKind
    at_us: int
    payload: Mapping[str, Any] = field(default_factory=dict)


class CommandKind(StrEnum):
    STOP = "stop"  # reason: user|max_runtime|interrupted…; SIGTERM, grace, SIGKILL, upload what was saved
    KILL = "kill"  # SIGKILL at once; nothing is uploaded but, within seconds, the checkpoints that are there


@dataclass(frozen=True, slots=True)
class Command:
    number: int
    kind: CommandKind
    payload: Mapping[str, Any] = field(default_factory=dict)
