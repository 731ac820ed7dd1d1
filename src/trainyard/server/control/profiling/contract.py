"""What the yard asks the evaluation process, and what it concludes. Everything here is plain JSON between the two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# The rule that writes the report. Clients add it to jobs by themselves.
REPORT_RULE = "ProfilerReport"


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The folders of one instance in one attempt, and what it offers; see `InstanceFacts`."""

    host: str
    hardware: str
    steps: str
    instance_type: str = ""
    cores: float | None = None
    memory_bytes: int | None = None
    gpus: tuple[str, ...] = ()
    price_per_hour: float | None = None
    currency: str = ""


@dataclass(frozen=True, slots=True)
class OfferedType:
    """An instance type that the job could use instead, with a price that somebody has set; see `InstanceFacts`."""

    name: str
    price_per_hour: float
    currency: str
    cores: float | None = None
    memory_bytes: int | None = None
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TracePlace:
    """A trace: where it is on S3, and the yard's own copy of it."""

    uri: str
    path: str


@dataclass(frozen=True, slots=True)
class RuleQuestion:
    """A profiler rule of the job. `status` is what earlier evaluations have found."""

    name: str
    rule: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    status: str = "InProgress"


@dataclass(frozen=True, slots=True)
class EvaluationQuestion:
    """Everything that an evaluation depends on. Times are Unix microseconds; `ended_us` is None while the job runs.

    The report is written into the folder `report`, if there is one, and `cache` keeps what was read from traces. Both
    are folders of the yard.
    """

    job: str
    job_arn: str
    region: str
    now_us: int
    started_us: int
    ended_us: int | None
    sources: tuple[SourcePlace, ...]
    rules: tuple[RuleQuestion, ...] = ()
    traces: tuple[TracePlace, ...] = ()
    earlier: tuple[Mapping[str, Any], ...] = ()
    instance_types: tuple[OfferedType, ...] = ()
    notes: tuple[str, ...] = ()
    report: str = ""
    cache: str = ""


@dataclass(frozen=True, slots=True)
class TraceQuestion:
    """Whether a trace can be read within the limits of the process. What was read goes to the cache."""

    path: str
    cache: str


@dataclass(frozen=True, slots=True)
class RunQuestion:
    """How fast the steps of a job that has ended were, which is answered from the step times alone."""

    job: str
    started_us: int
    ended_us: int
    sources: tuple[SourcePlace, ...]


@dataclass(frozen=True, slots=True)
class RuleConclusion:
    """What a rule concluded. `error` says why it could not be evaluated, `undecided` why it cannot judge yet."""

    name: str
    rule: str
    findings: Sequence[Mapping[str, Any]] = ()
    datapoints: int = 0
    violations: int = 0
    undecided: str = ""
    error: str = ""
    # As they were used, with defaults.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    # The files that were written for it, relative to the folder of its name in the folder of the report.
    files: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ProfileConclusion:
    """What a profile means, as of `evaluated_us`. `verdict` is a ProfileVerdict as plain JSON, `run` an EarlierRun.

    `phases` has the steps and the mean seconds by phase of each worker, `hardware` the latest value and the mean of
    each series of each instance.
    """

    verdict: Mapping[str, Any]
    evaluated_us: int
    rules: tuple[RuleConclusion, ...] = ()
    phases: Sequence[Mapping[str, Any]] = ()
    hardware: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    run: Mapping[str, Any] | None = None
    # What it cost, with the traces that were read for the first time.
    cpu_s: float = 0.0
    # Whether it was made from the whole profile, after the job had ended.
    is_final: bool = False
