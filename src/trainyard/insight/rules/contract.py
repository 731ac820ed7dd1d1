"""A rule looks at the steps of a training, one after the other, and tells what it finds.

The same rule judges a training that runs (in its process, from statistics of every step), one that runs or has ended
from what it saved (raw values too), and an old one. It is made for one run and keeps what it needs of earlier steps; it
reads no clock, no file and no network. Steps of one worker come in order; those of several workers come interleaved.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol

from trainyard.formats.tensors.contract import Mode, Probe, Step


class Severity(StrEnum):
    NOTICE = "notice"  # worth a look when there is time
    WARNING = "warning"  # the training learns less than it could
    CRITICAL = "critical"  # what comes after this step is worthless


@dataclass(frozen=True, slots=True)
class Need:
    """Which tensors a rule looks at, and what of them. A tensor that any collection or regex names is one.

    `is_raw` asks for the values: the rule then judges the steps in which they are saved, beside the job.
    """

    collections: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()  # searched anywhere in a name
    probes: tuple[Probe, ...] = ()
    is_raw: bool = False
    is_of_all_workers: bool = False  # the rule compares workers, so that one process cannot judge it alone


@dataclass(frozen=True, slots=True)
class Evidence:
    """A series to plot: what a number was at the steps before the finding."""

    label: str
    steps: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found. `message` is a sentence that says what was seen, where, and what the limit is."""

    step: int
    mode: Mode
    worker: str
    tensor: str  # empty where it is of no single one
    message: str
    value: float | None = None
    threshold: float | None = None
    severity: Severity = Severity.WARNING
    evidence: tuple[Evidence, ...] = ()
    module: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a rule. Values come as strings; `aws` is AWS's default, and `advised` ours where it differs."""

    name: str
    kind: type  # str, int, float, bool
    aws: object
    help: str
    advised: object = None  # None is the same as AWS's
    is_required: bool = False


class DebuggerRule(Protocol):
    """A rule on tensors. `catalog.py` makes one from its name and the parameters' strings."""

    name: ClassVar[str]  # as AWS spells it: VanishingGradient
    parameters: ClassVar[tuple[Parameter, ...]]

    @property
    def needs(self) -> Need: ...

    def check(self, step: Step) -> Iterable[Finding]:
        """What this step shows, in the light of those before it."""

    def end(self) -> Iterable[Finding]:
        """What only the whole run shows, once no step comes any more."""

    def idle(self, seconds: float) -> Iterable[Finding]:
        """What it shows that no step has come for so long; told again and again while none does."""


class RuleStatus(StrEnum):
    """Where the evaluation of a rule stands, in AWS's words."""

    IN_PROGRESS = "InProgress"
    NO_ISSUES_FOUND = "NoIssuesFound"
    ISSUES_FOUND = "IssuesFound"
    ERROR = "Error"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a rule of a job stands: what `DebugRuleEvaluationStatuses` and the events tell of it."""

    rule: str  # the name of its configuration, of which a job may have several for one rule
    status: RuleStatus
    details: str = ""
    findings: tuple[Finding, ...] = ()  # the first of each tensor; what repeats is counted
    steps_judged: int = 0
    steps_dropped: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)  # how often each tensor was found
