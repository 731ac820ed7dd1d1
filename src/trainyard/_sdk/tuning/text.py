"""Tuning jobs and their training jobs as text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard._sdk.training.console import duration_text, terminal_safe
from trainyard._sdk.training.job import hyperparameter
from trainyard._sdk.training.stream import Description


@dataclass(frozen=True, slots=True)
class ObjectiveAim:
    """The metric that a tuning job optimizes, and in which direction."""

    metric: str
    is_maximized: bool

    def prefers(self, value: float, other: float | None) -> bool:
        """Return whether a value is better than another one, or the first value."""
        return other is None or (value > other if self.is_maximized else value < other)


class TuningProgress:
    """Formats a line for each training job that ends, with the best value so far."""

    def __init__(self, description: Description) -> None:
        self._aim = aim_of(description)
        limit = description["HyperParameterTuningJobConfig"]["ResourceLimits"].get("MaxNumberOfTrainingJobs")
        self._total = f"/{limit}" if limit else ""
        self._width = len(str(limit or 100))
        self._count = 0
        self._best: float | None = None

    def line(self, trial: Description) -> str:
        """Return the line of one training job: number, status, objective, hyperparameters, duration, best so far."""
        self._count += 1
        value, is_new = value_of(trial), False
        if value is not None and self._aim.prefers(value, self._best):
            self._best, is_new = value, True
        number = f"{self._count:>{self._width}}{self._total}"
        measured = f"{self._aim.metric} {number_text(value)}" if value is not None else why_text(trial)
        best = "new best" if is_new else f"best {number_text(self._best)}" if self._best is not None else ""
        parts = (number, trial["TrainingJobStatus"], measured, values_text(trial), trial_duration_text(trial), best)
        return "  ".join(part for part in parts if part)


def aim_of(description: Description) -> ObjectiveAim:
    """Return the objective of a tuning job. Several algorithms share the objective of the first."""
    config = description["HyperParameterTuningJobConfig"]
    objective = config.get("HyperParameterTuningJobObjective") or next(
        each["TuningObjective"] for each in definitions_of(description)
    )
    return ObjectiveAim(objective["MetricName"], objective["Type"] == "Maximize")


def definitions_of(description: Description) -> list[Mapping[str, Any]]:
    """Return the training job definitions of a tuning job, one for each algorithm."""
    if "TrainingJobDefinition" in description:
        return [description["TrainingJobDefinition"]]
    return list(description["TrainingJobDefinitions"])


def value_of(trial: Description) -> float | None:
    """Return the final objective value of a training job; None if it reported none."""
    value: float | None = trial.get("FinalHyperParameterTuningJobObjectiveMetric", {}).get("Value")
    return value


def summary(description: Description) -> str:
    """Return a tuning job in a few lines: its status, the reason, and the best training job."""
    return "\n".join(_summary(description))


def values_text(trial: Description) -> str:
    """Return the tuned hyperparameters in short form."""
    tuned: Mapping[str, str] = trial.get("TunedHyperParameters", {})
    return " ".join(f"{name}={value_text(text)}" for name, text in sorted(tuned.items()))


def value_text(text: str) -> str:
    """Return the value of a hyperparameter: numbers with four digits, strings without quotes."""
    value = hyperparameter(text)
    return number_text(value) if isinstance(value, float) else terminal_safe(str(value))


def number_text(value: float | None) -> str:
    """Return a number with four digits; empty for None."""
    return "" if value is None else f"{value:.4g}"


def trial_duration_text(trial: Description) -> str:
    """Return how long a training job ran; empty if it has not ended."""
    start, end = trial.get("TrainingStartTime"), trial.get("TrainingEndTime")
    return duration_text((end - start).total_seconds()) if start and end else ""


def why_text(trial: Description) -> str:
    """Return why a training job has no objective value, on one line."""
    return terminal_safe(trial.get("FailureReason", "").partition("\n")[0]) or "no objective reported"


def counts_text(description: Description) -> str:
    """Return how many training jobs have each status."""
    counters = description["TrainingJobStatusCounters"]
    failed = counters.get("NonRetryableError", 0) + counters.get("RetryableError", 0)
    counts = {
        "completed": counters.get("Completed", 0),
        "stopped": counters.get("Stopped", 0),
        "failed": failed,
        "running": counters.get("InProgress", 0),
    }
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "none yet"


def best_lines(trial: Description, metric: str) -> Iterator[str]:
    """Yield the best training job, then its hyperparameters, one per line."""
    yield f"best: {trial['TrainingJobName']} with {metric} {number_text(value_of(trial))}"
    tuned: Mapping[str, str] = trial.get("TunedHyperParameters", {})
    width = max(map(len, tuned), default=0)
    for name, text in sorted(tuned.items()):
        yield f"  {name:<{width}}  {terminal_safe(str(hyperparameter(text)))}"


def details_lines(details: Mapping[str, Any]) -> Iterator[str]:
    """Yield what only the yard knows of a tuning job: why it ended, its seed, and notes."""
    if details.get("StopReason"):
        yield f"ended: {terminal_safe(details['StopReason'])}"
    yield f"seed: {details['RandomSeed']}"
    yield from (f"note: {terminal_safe(note)}" for note in details["Notes"])


def _summary(description: Description) -> Iterator[str]:
    name, status = description["HyperParameterTuningJobName"], description["HyperParameterTuningJobStatus"]
    end = description.get("HyperParameterTuningEndTime")
    duration = f" after {duration_text((end - description['CreationTime']).total_seconds())}" if end else ""
    yield f'Tuning job "{name}" is {status}{duration}; training jobs: {counts_text(description)}.'
    yield from (f"  {terminal_safe(line)}" for line in description.get("FailureReason", "").splitlines())
    metric, best = aim_of(description).metric, description.get("BestTrainingJob")
    overall = description.get("OverallBestTrainingJob")
    if best:
        yield from best_lines(best, metric)
    if overall and (not best or overall["TrainingJobName"] != best["TrainingJobName"]):
        yield f"including its parents, {next(best_lines(overall, metric))}"
