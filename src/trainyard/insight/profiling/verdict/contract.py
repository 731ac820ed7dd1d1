"""The verdict on a job as values: the bottleneck, further ones, advice, costs, and the change since earlier runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from trainyard.formats.profiles.contract import ProgramChange, StepPhase


class BottleneckKind(StrEnum):
    """What a step loses time to."""

    DATA_LOADING = "data_loading"  # workers, or the program itself, make batches too slowly; the CPU is the limit
    READING = "reading"  # batches wait for the disk or the network
    TOO_MANY_WORKERS = "too_many_workers"  # data workers take the cores that they or the training need
    HOST_TO_DEVICE = "host_to_device"
    SYNCHRONIZATION = "synchronization"  # the program waits for the device: .item(), .cpu(), print of a tensor
    PYTHON = "python"  # Python code of the program between or within the phases
    SMALL_BATCH = "small_batch"  # the device, or the cores, are not filled
    SMALL_KERNELS = "small_kernels"  # launches take longer than the kernels
    PRECISION = "precision"  # computes in float32 where bfloat16 would do
    COMMUNICATION = "communication"
    SLOW_RANK = "slow_rank"  # the other ranks wait for one
    CHECKPOINTS = "checkpoints"
    MEMORY_GROWTH = "memory_growth"  # memory that grows step by step until the job fails
    IDLE_GPU = "idle_gpu"  # a GPU that the program does not use
    THROTTLING = "throttling"  # the limit of cores, power or temperature slows the hardware
    INITIALIZATION = "initialization"  # the time before the first step outweighs the steps
    COMPUTE = "compute"  # the hardware computes: no cause outside the model


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """One cause of lost time. `title` and each part of the evidence are sentences with figures.

    `share` is the part of the step time that it takes, from 0 to 1, and `max_speedup` the factor that a job gains at
    most without it, T / (T - t); None if the time cannot be bounded.
    """

    kind: BottleneckKind
    title: str
    evidence: Sequence[str]
    share: float
    max_speedup: float | None = None


@dataclass(frozen=True, slots=True)
class ProfileAdvice:
    """One thing to do. `changes` are what a trial run can try; empty if only the author of the program can do it."""

    title: str
    reason: str
    kind: BottleneckKind
    changes: Mapping[ProgramChange, str] = field(default_factory=dict)
    max_speedup: float | None = None
    instance_type: str = ""  # the type to change to, if that is the advice
    saved_per_hour: float | None = None  # money


@dataclass(frozen=True, slots=True)
class ProfileCosts:
    """What a step and a sample cost, on all instances together. Unknown figures are None."""

    step_s: float | None = None
    samples_per_s: float | None = None
    currency: str = ""
    money_per_step: float | None = None
    money_per_million_samples: float | None = None
    joules_per_step: float | None = None
    joules_per_sample: float | None = None


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """The steps of an earlier run of the same job, in short; what a later run is compared with."""

    job: str
    ended_us: int
    step_s: float
    phases_s: Mapping[StepPhase, float]
    # What decides whether two runs are comparable: instance type and count, batch size, script …
    setup: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Regression:
    """A step that became slower, or quicker: `ratio` is its time divided by that of the earlier run."""

    message: str
    ratio: float
    since_job: str
    phase: StepPhase | None = None


@dataclass(frozen=True, slots=True)
class ProfileVerdict:
    """What a profile means. `summary` is the one sentence to read; `bottleneck` is None if nothing could be judged."""

    summary: str
    bottleneck: Bottleneck | None = None
    others: Sequence[Bottleneck] = ()
    advice: Sequence[ProfileAdvice] = ()
    costs: ProfileCosts = ProfileCosts()
    regression: Regression | None = None
    notes: Sequence[str] = ()
