"""The values of a hyperparameter tuning job: what is searched, how, within which limits, and the result of each trial.

They know neither the wire nor the storage. A trial is one training job of a tuning job.
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
    """The scale on which a numeric range is searched."""

    AUTO = "Auto"
    LINEAR = "Linear"
    LOGARITHMIC = "Logarithmic"
    REVERSE_LOGARITHMIC = "ReverseLogarithmic"


@dataclass(frozen=True, slots=True)
class HyperparameterRange:
    """The values of one hyperparameter: a number from `low` to `high`, both included, or one of `values`."""

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
class TuningDefinition:
    """One algorithm of a tuning job: what is searched and what is static. `name` is empty if there is only one."""

    name: str
    objective: Objective
    ranges: tuple[HyperparameterRange, ...]
    static: Mapping[str, str] = field(default_factory=dict)


class StrategyKind(StrEnum):
    BAYESIAN = "Bayesian"
    RANDOM = "Random"
    GRID = "Grid"
    HYPERBAND = "Hyperband"


class EarlyStopping(StrEnum):
    OFF = "Off"
    # Stops a trial that is worse than the median of the running averages of earlier trials.
    MEDIAN = "Auto"
    # Stops a trial whose extrapolated learning curve will not be among the best.
    CURVE = "Curve"


@dataclass(frozen=True, slots=True)
class HyperbandResources:
    """The fewest and the most reports of the objective, such as epochs, that Hyperband gives a trial."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class CompletionCriteria:
    """When a tuning job ends before its limits are reached. None and False switch a criterion off."""

    target: float | None = None
    most_without_improvement: int | None = None
    on_convergence: bool = False


class WarmStartKind(StrEnum):
    IDENTICAL = "IdenticalDataAndAlgorithm"
    TRANSFER = "TransferLearning"


@dataclass(frozen=True, slots=True)
class WarmStart:
    kind: WarmStartKind
    parents: tuple[str, ...]  # ids of tuning jobs that have ended


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """What to search, how, and how far. It never changes after the create."""

    strategy: StrategyKind
    definitions: tuple[TuningDefinition, ...]
    max_parallel: int
    max_trials: int | None = None  # None means that time or a completion criterion ends it
    max_runtime_s: int | None = None
    seed: int = 0
    early_stopping: EarlyStopping = EarlyStopping.OFF
    resources: HyperbandResources | None = None  # for Hyperband
    completion: CompletionCriteria = CompletionCriteria()
    warm_start: WarmStart | None = None
    pruning_rules: tuple[str, ...] = ()  # debugger rules that stop a trial if they find an issue

    def definition(self, name: str) -> TuningDefinition:
        return next(each for each in self.definitions if each.name == name)


class TuningStatus(StrEnum):
    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


class TrialStatus(StrEnum):
    PLANNED = "Planned"  # its training job may not exist yet
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    STOPPED = "Stopped"
    FAILED = "Failed"


class StopCause(StrEnum):
    """Why a trial was stopped before its program ended."""

    EARLY = "early"  # by early stopping or Hyperband
    RULE = "rule"  # a debugger rule found an issue
    STUDY = "study"  # its tuning job was stopped or ended
    USER = "user"


@dataclass(frozen=True, slots=True)
class TuningTrial:
    """One training job of a tuning job. `curve` has the reported values of the objective, while they are needed.

    `values` are the tuned hyperparameters, as the program gets them.
    """

    number: int  # from 1
    job: str  # the name of its training job
    definition: str
    values: Mapping[str, str]
    status: TrialStatus = TrialStatus.PLANNED
    job_id: str = ""
    objective: float | None = None  # the last reported value, if any
    curve: tuple[float, ...] = ()
    cause: StopCause | None = None
    why: str = ""  # it stopped or failed
    created_at: datetime | None = None
    started_at: datetime | None = None  # training
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in (TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.FAILED)


@dataclass(frozen=True, slots=True)
class TuningJob:
    """A tuning job as it is stored. Its trials are stored separately.

    `planned` is how many trials it has had so far, and so the number of the last one.
    """

    name: str
    arn: str
    account: str
    region: str
    plan: TuningPlan
    created_at: datetime
    status: TuningStatus = TuningStatus.IN_PROGRESS
    site: str = ""  # of the yard that has its data, if several share one database
    planned: int = 0
    measured: int = 0  # trials that have ended with an objective that counts
    best: int | None = None  # number of the best measured trial
    since_best: int = 0  # trials that ended after the best one
    converged_at: datetime | None = None
    ended_at: datetime | None = None
    stop_reason: str = ""  # why no more trials are started; empty while they are
    failure: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_final(self) -> bool:
        return self.status in (TuningStatus.COMPLETED, TuningStatus.FAILED, TuningStatus.STOPPED)
