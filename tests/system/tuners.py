"""Tuning jobs of one user on a real yard, through boto3."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tests.system.trainees import ENDED, Trainee
from trainyard.testing.eventually import eventually

METRIC = "loss"
# The start of the program of every trial.
PRELUDE = """
import json, os, sys, time
tuned = {name: json.loads(value) if isinstance(value, str) and value[:1] == '"' else value
         for name, value in json.load(open("/opt/ml/input/config/hyperparameters.json")).items()}
number = int(os.environ["TRAINING_JOB_NAME"].split("-")[-2])
def report(value):
    print(f"loss={value};", flush=True)
"""


@dataclass(frozen=True)
class Tuner:
    """A user who tunes scripts that print `loss=...;` and minimizes it."""

    trainee: Trainee

    @property
    def sagemaker(self) -> Any:
        return self.trainee.sagemaker

    def request(
        self,
        name: str,
        script: str,
        *,
        ranges: Mapping[str, Sequence[Any]],
        trials: int | None = None,
        parallel: int = 2,
        strategy: str = "Bayesian",
        definition: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> dict[str, Any]:
        """Return a request. A range is two numbers or texts. Members of configuration and definition can be added."""
        training = self.trainee.request(name, PRELUDE + script)
        copied = ("RoleArn", "OutputDataConfig", "ResourceConfig", "StoppingCondition")
        limits = {"MaxParallelTrainingJobs": parallel} | ({"MaxNumberOfTrainingJobs": trials} if trials else {})
        metrics = [{"Name": METRIC, "Regex": "loss=(.*);"}]
        return {
            "HyperParameterTuningJobName": name,
            "HyperParameterTuningJobConfig": {
                "Strategy": strategy,
                "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": METRIC},
                "ResourceLimits": limits,
                "ParameterRanges": _ranges(ranges),
                "RandomSeed": 5,
                **config,
            },
            "TrainingJobDefinition": {
                **{member: training[member] for member in copied},
                "AlgorithmSpecification": training["AlgorithmSpecification"] | {"MetricDefinitions": metrics},
                "StaticHyperParameters": training["HyperParameters"],
                **(definition or {}),
            },
        }

    def start(self, name: str, script: str, **changed: Any) -> None:
        self.sagemaker.create_hyper_parameter_tuning_job(**self.request(name, script, **changed))

    def describe(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
        return answer

    def trials(self, name: str) -> list[dict[str, Any]]:
        """Return all started trials by number."""
        pages = self.sagemaker.get_paginator("list_training_jobs_for_hyper_parameter_tuning_job").paginate(
            HyperParameterTuningJobName=name, SortBy="Name", SortOrder="Ascending"
        )
        return [each for page in pages for each in page["TrainingJobSummaries"]]

    def finish(self, name: str, *, within_s: float = 120) -> dict[str, Any]:
        """Wait until a tuning job has ended."""

        def look() -> dict[str, Any] | None:
            told = self.describe(name)
            return told if told["HyperParameterTuningJobStatus"] in ENDED else None

        return eventually(look, within=timedelta(seconds=within_s)) or {}

    def run(self, name: str, script: str, **changed: Any) -> dict[str, Any]:
        """Run a tuning job to its end."""
        self.start(name, script, **changed)
        return self.finish(name)


def numbers_of(trials: Sequence[Mapping[str, Any]]) -> list[int]:
    return [int(each["TrainingJobName"].split("-")[-2]) for each in trials]


def objectives_of(trials: Sequence[Mapping[str, Any]]) -> list[float | None]:
    told = [each.get("FinalHyperParameterTuningJobObjectiveMetric", {}) for each in trials]
    return [each.get("Value") for each in told]


def _ranges(ranges: Mapping[str, Sequence[Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for name, given in ranges.items():
        if isinstance(given[0], str):
            found.setdefault("CategoricalParameterRanges", []).append({"Name": name, "Values": list(given)})
        else:
            kind = "Integer" if isinstance(given[0], int) else "Continuous"
            low, high = map(str, given)
            found.setdefault(f"{kind}ParameterRanges", []).append({"Name": name, "MinValue": low, "MaxValue": high})
    return found
