"""A rule looks at the steps of a training, one after the other, and tells what it finds.

The same rule judges a training that runs (in its process, from statistics of every step), one that runs or has ended
from what it saved (raw values too), and an old one. It is made for one run and keeps what it needs of earlier steps; it
reads no clock, no file and no network. Steps of one worker come in order; those of several workers come interleaved.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol, runtime_checkable

from trainyard.formats.tensors.contract import Mode, Probe, Step, TensorInfo
from trainyard.foundation.rule_status import RuleStatus as RuleStatus


class Severity(StrEnum):
    NOTICE = "notice"  # worth a look when there is time
    WARNING = "warning"  # the training learns less than it could
    CRITICAL = "critical"  # what comes after this step is worthless


@dataclass(frozen=True, slots=True)
class Need:
    """Which tensors a rule looks at, and what of them. A tensor that any collection or regex names is one.

    `is_raw` asks for the values: the rule then judges the steps in which they are saved, beside the job. `also` are
    further tensors of which something else is wanted, such as the losses beside the gradients that are probed.
    """

    collections: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()  # searched anywhere in a name
    probes: tuple[Probe, ...] = ()
    is_raw: bool = False
    is_of_all_workers: bool = False  # the rule compares workers, so that one process cannot judge it alone
    also: tuple["Need", ...] = ()
    other_runs: tuple[str, ...] = ()  # where the tensors of runs are that the rule, a ComparesRuns, is to be given

    @property
    def parts(self) -> tuple["Need", ...]:
        """This need and those beside it, one after the other."""
        return (self, *(part for need in self.also for part in need.parts))


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

    @classmethod
    def at(
        cls,
        step: Step,
        tensor: TensorInfo | str,
        message: str,
        *,
        value: float,
        threshold: float,
        evidence: tuple[Evidence, ...],
        severity: Severity = Severity.WARNING,
    ) -> "Finding":
        """What a step shows of a tensor, of one that goes by a name only, or of none."""
        name, module = (tensor, "") if isinstance(tensor, str) else (tensor.name, tensor.module)
        return cls(step.number, step.mode, step.worker, name, message, value, threshold, severity, evidence, module)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a rule. Values come as strings; `aws` is AWS's default, and `advised` ours where it differs."""

    name: str
    kind: type  # str, int, float, bool; tuple is a list of strings with commas between them
    aws: object
    help: str
    advised: object = None  # None is the same as AWS's
    is_required: bool = False
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()


class DebuggerRule(Protocol):
    """A rule on tensors. `catalog.py` makes one from its name and the parameters' strings.

    Rules of ours are its subclasses, so that one that waits for nothing and concludes nothing at the end does not have
    to say so.
    """

    name: ClassVar[str]  # as AWS spells it: VanishingGradient
    parameters: ClassVar[tuple[Parameter, ...]]

    @property
    def needs(self) -> Need: ...

    def check(self, step: Step) -> Iterable[Finding]:
        """What this step shows, in the light of those before it."""

    def end(self) -> Iterable[Finding]:
        """What only the whole run shows, once no step comes any more."""
        return ()

    def idle(self, seconds: float) -> Iterable[Finding]:  # noqa: ARG002 - most rules wait for nothing
        """What it shows that no step has come for so long; told again and again while none does."""
        return ()


StepsOf = Callable[[str, int], Step | None]
"""A step of a run, by its worker and its number; None where the run does not have it."""


@runtime_checkable
class ComparesRuns(Protocol):
    """A rule that holds a run against others, which whoever judges opens: a rule itself reads no file."""

    def compare_with(self, runs: Mapping[str, StepsOf]) -> None:
        """The runs that its needs name, by the same words; told before the first step."""


@runtime_checkable
class WritesFiles(Protocol):
    """A rule that leaves files, which whoever judges puts under `rule-output/<name of the configuration>`."""

    def files(self) -> Mapping[str, str]:
        """The texts of the files by their names; asked for once, after `end`."""


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
