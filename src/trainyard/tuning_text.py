"""Tuning jobs and what came of their training jobs, as text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.following import Description
from trainyard.showing import clock_text, inert
from trainyard.training_job import hyperparameter


@dataclass(frozen=True, slots=True)
class Aim:
    """What a tuning job wants of its objective."""

    metric: str
    is_maximized: bool

    def prefers(self, value: float, other: float | None) -> bool:
        """Whether a value is better than another, or the first of all."""
        return other is None or (value > other if self.is_maximized else value < other)


class Progress:
    """Tells of one training job after another as it ends, and of the best so far."""

    def __init__(self, description: Description) -> None:
        self._aim = aim_of(description)
        limit = description["HyperParameterTuningJobConfig"]["ResourceLimits"].get("MaxNumberOfTrainingJobs")
        self._total = f"/{limit}" if limit else ""
        self._width = len(str(limit or 100))
        self._count = 0
        self._best: float | None = None

    def line(self, trial: Description) -> str:
        """One line: which of how many, how it ended, what was measured, with which values, and the best so far."""
        self._count += 1
        value, is_new = value_of(trial), False
        if value is not None and self._aim.prefers(value, self._best):
            self._best, is_new = value, True
        number = f"{self._count:>{self._width}}{self._total}"
        measured = f"{self._aim.metric} {number_text(value)}" if value is not None else why_text(trial)
        best = "new best" if is_new else f"best {number_text(self._best)}" if self._best is not None else ""
        parts = (number, trial["TrainingJobStatus"], measured, values_text(trial), lasted_text(trial), best)
        return "  ".join(part for part in parts if part)


def aim_of(description: Description) -> Aim:
    """The objective; of several algorithms, that of the first, which the others share."""
    config = description["HyperParameterTuningJobConfig"]
    objective = config.get("HyperParameterTuningJobObjective") or next(
        each["TuningObjective"] for each in definitions_of(description)
    )
    return Aim(objective["MetricName"], objective["Type"] == "Maximize")


def definitions_of(description: Description) -> list[Mapping[str, Any]]:
    """The algorithms of a tuning job, of which there is often only one."""
    if "TrainingJobDefinition" in description:
        return [description["TrainingJobDefinition"]]
    return list(description["TrainingJobDefinitions"])


def value_of(trial: Description) -> float | None:
    """What the objective of a training job came to; None when it was never measured."""
    value: float | None = trial.get("FinalHyperParameterTuningJobObjectiveMetric", {}).get("Value")
    return value


def summary(description: Description) -> str:
    """A tuning job in a few lines: how it stands, why, and the best of it."""
    return "\n".join(_summary(description))


def values_text(trial: Description) -> str:
    """The tuned hyperparameters, as short as tells them apart."""
    tuned: Mapping[str, str] = trial.get("TunedHyperParameters", {})
    return " ".join(f"{name}={value_text(text)}" for name, text in sorted(tuned.items()))


def value_text(text: str) -> str:
    """One hyperparameter as people read it: numbers with four digits, texts without their quotes."""
    value = hyperparameter(text)
    return number_text(value) if isinstance(value, float) else inert(str(value))


def number_text(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def lasted_text(trial: Description) -> str:
    start, end = trial.get("TrainingStartTime"), trial.get("TrainingEndTime")
    return clock_text(round((end - start).total_seconds(), 1)) if start and end else ""


def why_text(trial: Description) -> str:
    """Why a training job has no value, on one line."""
    return inert(trial.get("FailureReason", "").partition("\n")[0]) or "nothing measured"


def counts_text(description: Description) -> str:
    """How many training jobs ended how."""
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
    """The best training job with its values, one on each line."""
    yield f"best: {trial['TrainingJobName']} with {metric} {number_text(value_of(trial))}"
    tuned: Mapping[str, str] = trial.get("TunedHyperParameters", {})
    width = max(map(len, tuned), default=0)
    for name, text in sorted(tuned.items()):
        yield f"  {name:<{width}}  {inert(str(hyperparameter(text)))}"


def details_lines(details: Mapping[str, Any]) -> Iterator[str]:
    """What the yard alone knows of a tuning job: why it is over, how to repeat it, and what is otherwise than asked."""
    if details.get("StopReason"):
        yield f"over: {inert(details['StopReason'])}"
    yield f"seed: {details['RandomSeed']}"
    yield from (f"note: {inert(note)}" for note in details["Notes"])


def _summary(description: Description) -> Iterator[str]:
    name, status = description["HyperParameterTuningJobName"], description["HyperParameterTuningJobStatus"]
    end = description.get("HyperParameterTuningEndTime")
    lasted = f" after {clock_text((end - description['CreationTime']).total_seconds())}" if end else ""
    yield f'Tuning job "{name}" is {status}{lasted}; training jobs: {counts_text(description)}.'
    yield from (f"  {inert(line)}" for line in description.get("FailureReason", "").splitlines())
    metric, best = aim_of(description).metric, description.get("BestTrainingJob")
    overall = description.get("OverallBestTrainingJob")
    if best:
        yield from best_lines(best, metric)
    if overall and (not best or overall["TrainingJobName"] != best["TrainingJobName"]):
        yield f"with its parents, the {next(best_lines(overall, metric))}"
