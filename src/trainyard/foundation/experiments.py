"""Experiments, trials and trial components as values: what was tried, with which parameters, and what came out."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum


class ComponentStatus(StrEnum):
    """The primary status of a trial component."""

    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something that a trial component read or wrote: a URI or another short text, and its media type."""

    value: str
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class MetricStatistics:
    """The statistics of all values of a metric, without the values.

    `squares` is the sum of the squared deviations from the mean; None if it is not known. Values that are not finite
    count, but do not change the minimum, the maximum and the mean.
    """

    last: float
    at: datetime
    count: int
    finite_count: int = 0
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    squares: float | None = None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the sample; None if it is not known."""
        return deviation_of(self.squares, self.finite_count)


@dataclass(frozen=True, slots=True)
class Parent:
    """A trial that a component belongs to, and the experiment of the trial."""

    trial: str
    experiment: str


@dataclass(frozen=True, slots=True)
class Experiment:
    """A collection of trials."""

    name: str
    arn: str
    display_name: str = ""
    description: str = ""
    created_by: str = ""
    modified_by: str = ""


@dataclass(frozen=True, slots=True)
class ExperimentTrial:
    """A collection of trial components in an experiment."""

    name: str
    arn: str
    experiment: str
    display_name: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_by: str = ""
    modified_by: str = ""


@dataclass(frozen=True, slots=True)
class TrialComponent:
    """One thing that was tried, such as a job or a run of a script.

    `metrics` are those that were put one by one, and `source_metrics` those of the job that it came from. `source_id`
    is the id of that job, because a later one may have the same ARN.
    """

    name: str
    arn: str
    display_name: str = ""
    source_arn: str = ""
    source_id: str = ""
    run_name: str = ""
    status: ComponentStatus | None = None
    message: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    inputs: Mapping[str, Artifact] = field(default_factory=dict)
    outputs: Mapping[str, Artifact] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, MetricStatistics] = field(default_factory=dict)
    source_metrics: Mapping[str, MetricStatistics] = field(default_factory=dict)
    # How much of the file of its metrics `metrics` includes, in bytes, by the yard that has the file.
    summarized: Mapping[str, int] = field(default_factory=dict)
    parents: tuple[Parent, ...] = ()
    created_by: str = ""
    modified_by: str = ""

    @property
    def all_metrics(self) -> Mapping[str, MetricStatistics]:
        return {**self.source_metrics, **self.metrics}


def component_name_of_job(job: str) -> str:
    """Return the name of the component that a training job makes, in lower case as on AWS."""
    return f"{job}-aws-training-job".lower()


def deviation_of(squares: float | None, count: int) -> float | None:
    """Return the standard deviation of a sample from the sum of the squared deviations from its mean."""
    if squares is None or not count:
        return None
    return math.sqrt(squares / (count - 1)) if count > 1 else 0.0


def summarize(values: Iterable[tuple[float, datetime]]) -> MetricStatistics | None:
    """Return the statistics of values in the order in which they came; None if there is none."""
    known = list(values)
    if not known:
        return None
    last, at = known[-1]
    finite = [value for value, _ in known if math.isfinite(value)]
    if not finite:
        return MetricStatistics(last, at, len(known))
    mean = math.fsum(finite) / len(finite)
    squares = math.fsum((value - mean) ** 2 for value in finite)
    return MetricStatistics(last, at, len(known), len(finite), min(finite), max(finite), mean, squares)


def merge_statistics(earlier: MetricStatistics, later: MetricStatistics) -> MetricStatistics:
    """Return the statistics of the values of both, with the last value of the later ones."""
    finite_count = earlier.finite_count + later.finite_count
    merged = replace(later, count=earlier.count + later.count, finite_count=finite_count)
    if earlier.minimum is None or earlier.maximum is None or earlier.mean is None:
        return merged
    if later.minimum is None or later.maximum is None or later.mean is None:
        return replace(
            merged, minimum=earlier.minimum, maximum=earlier.maximum, mean=earlier.mean, squares=earlier.squares
        )
    difference = later.mean - earlier.mean
    weight = later.finite_count / finite_count
    squares = None
    if earlier.squares is not None and later.squares is not None:
        squares = earlier.squares + later.squares + difference**2 * earlier.finite_count * weight
    return replace(
        merged,
        minimum=min(earlier.minimum, later.minimum),
        maximum=max(earlier.maximum, later.maximum),
        mean=earlier.mean + difference * weight,
        squares=squares,
    )
