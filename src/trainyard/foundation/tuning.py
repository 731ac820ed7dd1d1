"""The values of a hyperparameter tuning job: what is searched, how, within which limits, and what each trial came to.

They know neither the words of the wire nor where anything is kept. A trial is one training job of a tuning job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Direction(StrEnum):
    MAXIMIZE = "Maximize"
    MINIMIZE = "Minimize"


class RangeKind(StrEnum):
    CONTINUOUS = "Continuous"
    INTEGER = "Integer"
    CATEGORICAL = "Categorical"


class Scaling(StrEnum):
    """How the values of a numeric range are spread: what is a step of equal size."""

    AUTO = "Auto"
    LINEAR = "Linear"
    LOGARITHMIC = "Logarithmic"
    REVERSE_LOGARITHMIC = "ReverseLogarithmic"


@dataclass(frozen=True, slots=True)
class ParameterRange:
    """What one hyperparameter may be: a number from `low` to `high`, both included, or one of `values`."""

    name: str
    kind: RangeKind
    low: float = 0.0
    high: float = 0.0
    scaling: Scaling = Scaling.AUTO
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Objective:
    metric: str
    direction: Direction


@dataclass(frozen=True, slots=True)
class Definition:
    """One algorithm of a tuning job, with what is searched and what stays as it is; `name` is empty for an only one."""

    name: str
    objective: Objective
    ranges: tuple[ParameterRange, ...]
    static: Mapping[str, str] = field(default_factory=dict)


class StrategyKind(StrEnum):
    BAYESIAN = "Bayesian"
    RANDOM = "Random"
    GRID = "Grid"
    HYPERBAND = "Hyperband"


class EarlyStopping(StrEnum):
    OFF = "Off"
    MEDIAN = "Auto"  # worse than the median of the running averages of the trials before it
    CURVE = "Curve"  # where its learning curve leads will not be among the best


@dataclass(frozen=True, slots=True)
class Resources:
    """How many reports of the objective, such as epochs, Hyperband gives a trial at the least and at the most."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Completion:
    """When a tuning job is over before its limits are reached; None and False are never."""

    target: float | None = None
    most_without_improvement: int | None = None
    on_convergence: bool = False


class WarmStartKind(StrEnum):
    IDENTICAL = "IdenticalDataAndAlgorithm"
    TRANSFER = "TransferLearning"


@dataclass(frozen=True, slots=True)
class WarmStart:
    kind: WarmStartKind
    parents: tuple[str, ...]  # the ids of the tuning jobs, which have ended


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """What to search, how, and how far. It never changes after the create."""

    strategy: StrategyKind
    definitions: tuple[Definition, ...]
    max_parallel: int
    max_trials: int | None = None  # None where only time or a completion criterion ends it
    max_runtime_s: int | None = None
    seed: int = 0
    early_stopping: EarlyStopping = EarlyStopping.OFF
    resources: Resources | None = None  # for Hyperband
    completion: Completion = Completion()
    warm_start: WarmStart | None = None
    pruning_rules: tuple[str, ...] = ()  # of the debugger; a trial that one of them finds fault with is stopped

    def definition(self, name: str) -> Definition:
        return next(each for each in self.definitions if each.name == name)


class TuningStatus(StrEnum):
    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


class TrialStatus(StrEnum):
    PLANNED = "Planned"  # its values are remembered; its training job may not exist yet
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    STOPPED = "Stopped"
    FAILED = "Failed"


class StopCause(StrEnum):
    """Why a trial was stopped before its program ended."""

    EARLY = "early"  # by early stopping or Hyperband
    RULE = "rule"  # a rule of the debugger found fault with it
    STUDY = "study"  # its tuning job was stopped, or was over
    USER = "user"


@dataclass(frozen=True, slots=True)
class Trial:
    """One training job of a tuning job. `curve` is what the objective was, report by report, while it is needed.

    `values` are the tuned hyperparameters as the program is given them.
    """

    number: int  # from 1
    job: str  # the name of its training job
    definition: str
    values: Mapping[str, str]
    status: TrialStatus = TrialStatus.PLANNED
    job_id: str = ""
    objective: float | None = None  # the last value reported; None when none was
    curve: tuple[float, ...] = ()
    cause: StopCause | None = None
    why: str = ""  # it was stopped or failed
    created_at: datetime | None = None
    started_at: datetime | None = None  # training
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in (TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.FAILED)


@dataclass(frozen=True, slots=True)
class TuningJob:
    """A tuning job as it is remembered; its trials are remembered each for itself.

    `planned` is how many trials it has had so far, and the number of the last one.
    """

    name: str
    arn: str
    account: str
    region: str
    plan: TuningPlan
    created_at: datetime
    status: TuningStatus = TuningStatus.IN_PROGRESS
    site: str = ""  # of the yard that has its data, where there are several on one database
    planned: int = 0
    measured: int = 0  # of its trials, those that are over and have an objective that counts
    best: int | None = None  # the number of the best trial that was measured
    since_best: int = 0  # trials that ended after the best one without being better
    converged_at: datetime | None = None
    ended_at: datetime | None = None
    stop_reason: str = ""  # why no further trial is started; empty as long as they are
    failure: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_final(self) -> bool:
        return self.status in (TuningStatus.COMPLETED, TuningStatus.FAILED, TuningStatus.STOPPED)
