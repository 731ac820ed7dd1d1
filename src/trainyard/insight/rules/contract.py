"""The interface of a rule, which checks the steps of a training one after another and returns its findings.

The same rule can check a running training in its own process, from statistics of every step. It can check a running or
finished one from what it saved, with raw values, and replay an old one. A rule is made for one run and remembers what
it needs of earlier steps. It reads no clock, no file and no network. Steps of one worker arrive in order; those of
several workers are interleaved.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol, runtime_checkable

from trainyard.formats.tensors.contract import Mode, Probe, Step, TensorInfo
from trainyard.foundation.jobs.status import RuleStatus


class Severity(StrEnum):
    """How bad a finding is.

    A notice is worth a look. After a warning, the training learns less than it could. After a critical finding, the
    steps that follow are worthless.
    """

    NOTICE = "notice"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Need:
    """Which tensors a rule needs, and what about them. A tensor matches if any collection or regex names it.

    Regexes are searched anywhere in a name. `is_raw` asks for the values: the rule then checks the steps in which they
    are saved, in a separate process. A rule that compares workers sets `is_of_all_workers`, so that no single process
    evaluates it alone. `also` are other tensors with needs of their own, such as losses in addition to gradients that
    are probed. `other_runs` are the locations of tensors of runs that a ComparesRuns rule gets.
    """

    collections: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()
    probes: tuple[Probe, ...] = ()
    is_raw: bool = False
    is_of_all_workers: bool = False
    also: tuple["Need", ...] = ()
    other_runs: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple["Need", ...]:
        """This need and those in `also`, as a flat list."""
        return (self, *(part for need in self.also for part in need.parts))


@dataclass(frozen=True, slots=True)
class Evidence:
    """A series to plot: a number at the steps before the finding."""

    label: str
    steps: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found. `message` is a sentence: what was seen, where, and what the limit is.

    `tensor` is empty if the finding is not about a single one.
    """

    step: int
    mode: Mode
    worker: str
    tensor: str
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
        """Make a finding about a tensor of a step, which may also be given by its name, or empty."""
        name, module = (tensor, "") if isinstance(tensor, str) else (tensor.name, tensor.module)
        return cls(step.number, step.mode, step.worker, name, message, value, threshold, severity, evidence, module)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a rule. Values arrive as strings; `aws` is AWS's default, and `advised` is ours if it differs.

    `kind` is str, int, float or bool; tuple means a list of strings separated by commas.
    """

    name: str
    kind: type
    aws: object
    help: str
    advised: object = None
    is_required: bool = False
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()


class DebuggerRule(Protocol):
    """A rule on tensors. `catalog.py` makes one from its name and the strings of its parameters.

    Built-in rules are subclasses, so that they inherit `end` and `idle`. `name` is spelled as on AWS, such as
    VanishingGradient.
    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]

    @property
    def needs(self) -> Need: ...

    def check(self, step: Step) -> Iterable[Finding]:
        """Yield what this step shows, given the steps before it."""

    def end(self) -> Iterable[Finding]:
        """Yield what only the complete run shows, after the last step."""
        return ()

    def idle(self, seconds: float) -> Iterable[Finding]:  # noqa: ARG002 - most rules ignore idle time
        """Yield what it means that no step has arrived for so long; called repeatedly until one does."""
        return ()


StepsOf = Callable[[str, int], Step | None]
"""Looks up a step of a run by its worker and number; None if the run does not have it."""


@runtime_checkable
class ComparesRuns(Protocol):
    """A rule that compares a run with others. The evaluator opens those, since rules read no files."""

    def compare_with(self, runs: Mapping[str, StepsOf]) -> None:
        """Set the runs that its needs name, under the same names; called before the first step."""


@runtime_checkable
class WritesFiles(Protocol):
    """A rule that produces files. The evaluator puts them under `rule-output/<name of the configuration>`."""

    def files(self) -> Mapping[str, str]:
        """Return the texts of the files by name; called once, after `end`."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The state of a rule in a job, as in `DebugRuleEvaluationStatuses` and in events.

    `rule` is the name of its configuration, since a job may have several for one rule. `findings` has the first one of
    each tensor, and `counts` how often each tensor was found.
    """

    rule: str
    status: RuleStatus
    details: str = ""
    findings: tuple[Finding, ...] = ()
    steps_judged: int = 0
    steps_dropped: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


def needs_own_process(rule: DebuggerRule) -> bool:
    """Return whether a rule runs in a separate process instead of the one that trains.

    It does if it needs raw values, other workers, other runs or files, or reacts when no steps arrive.
    """
    waits = getattr(type(rule), "idle", None) is not DebuggerRule.idle
    needs_more = any(need.is_raw or need.is_of_all_workers or need.other_runs for need in rule.needs.parts)
    return waits or needs_more or isinstance(rule, WritesFiles)
