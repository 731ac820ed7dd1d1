"""What can be said of a tuning job beyond its ranges: what it starts from, how it searches, when it is over."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Self

from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import Shape


class WarmStartTypes(Enum):
    """What the parents of a tuning job have in common with it."""

    IDENTICAL_DATA_AND_ALGORITHM = "IdenticalDataAndAlgorithm"
    TRANSFER_LEARNING = "TransferLearning"


class WarmStartConfig:
    """The ended tuning jobs that another one learns from, by their names."""

    def __init__(self, warm_start_type: WarmStartTypes, parents: Iterable[str]) -> None:
        if not isinstance(warm_start_type, WarmStartTypes):
            words = ", ".join(f"WarmStartTypes.{each.name}" for each in WarmStartTypes)
            raise InvalidRequest(f"warm_start_type is {warm_start_type!r}; it can be {words}.")
        self.type = warm_start_type
        self.parents = {parents} if isinstance(parents, str) else set(parents or ())
        if not self.parents:
            raise InvalidRequest("parents is empty; name the tuning jobs to start from.")

    @classmethod
    def from_job_desc(cls, warm_start_config: Mapping[str, Any] | None) -> Self | None:
        """What a description says; None where the job started from nothing."""
        if not warm_start_config:
            return None
        parents = warm_start_config["ParentHyperParameterTuningJobs"]
        names = [parent["HyperParameterTuningJobName"] for parent in parents]
        return cls(WarmStartTypes(warm_start_config["WarmStartType"]), names)

    def to_input_req(self) -> Shape:
        parents = [{"HyperParameterTuningJobName": parent} for parent in sorted(self.parents)]
        return {"WarmStartType": self.type.value, "ParentHyperParameterTuningJobs": parents}


class HyperbandStrategyConfig:
    """How many reports of the objective, such as epochs, Hyperband gives a job at the most and at the least."""

    def __init__(self, max_resource: int | None = None, min_resource: int | None = None) -> None:
        self.max_resource, self.min_resource = max_resource, min_resource

    @classmethod
    def from_job_desc(cls, hyperband_strategy_config: Mapping[str, Any]) -> Self:
        return cls(hyperband_strategy_config.get("MaxResource"), hyperband_strategy_config.get("MinResource"))

    def to_input_req(self) -> Shape:
        return _given(MinResource=self.min_resource, MaxResource=self.max_resource)


class StrategyConfig:
    """What a strategy is told; only Hyperband is told anything."""

    def __init__(self, hyperband_strategy_config: HyperbandStrategyConfig) -> None:
        self.hyperband_strategy_config = hyperband_strategy_config

    @classmethod
    def from_job_desc(cls, strategy_config: Mapping[str, Any]) -> Self:
        return cls(HyperbandStrategyConfig.from_job_desc(strategy_config["HyperbandStrategyConfig"]))

    def to_input_req(self) -> Shape:
        return {"HyperbandStrategyConfig": self.hyperband_strategy_config.to_input_req()}


class InstanceConfig:
    """Instances that a training job may run on, instead of those of its estimator."""

    def __init__(
        self, instance_count: int | None = None, instance_type: str | None = None, volume_size: int = 30
    ) -> None:
        self.instance_count, self.instance_type, self.volume_size = instance_count, instance_type, volume_size

    @classmethod
    def from_job_desc(cls, instance_config: Mapping[str, Any]) -> Self:
        told = instance_config
        return cls(told["InstanceCount"], told["InstanceType"], told["VolumeSizeInGB"])

    def to_input_req(self) -> Shape:
        return _given(
            InstanceCount=self.instance_count, InstanceType=self.instance_type, VolumeSizeInGB=self.volume_size
        )


class TuningJobCompletionCriteriaConfig:
    """When a tuning job is over before it has had all its training jobs."""

    def __init__(
        self,
        max_number_of_training_jobs_not_improving: int | None = None,
        complete_on_convergence: bool | None = None,
        target_objective_metric_value: float | None = None,
    ) -> None:
        self.max_number_of_training_jobs_not_improving = max_number_of_training_jobs_not_improving
        self.complete_on_convergence = complete_on_convergence
        self.target_objective_metric_value = target_objective_metric_value

    @classmethod
    def from_job_desc(cls, completion_criteria_config: Mapping[str, Any]) -> Self:
        told = completion_criteria_config
        convergence = told.get("ConvergenceDetected", {}).get("CompleteOnConvergence")
        return cls(
            told.get("BestObjectiveNotImproving", {}).get("MaxNumberOfTrainingJobsNotImproving"),
            None if convergence is None else convergence == "Enabled",
            told.get("TargetObjectiveMetricValue"),
        )

    def to_input_req(self) -> Shape:
        found: Shape = {}
        if self.max_number_of_training_jobs_not_improving is not None:
            most = self.max_number_of_training_jobs_not_improving
            found["BestObjectiveNotImproving"] = {"MaxNumberOfTrainingJobsNotImproving": most}
        if self.target_objective_metric_value is not None:
            found["TargetObjectiveMetricValue"] = self.target_objective_metric_value
        if self.complete_on_convergence is not None:
            word = "Enabled" if self.complete_on_convergence else "Disabled"
            found["ConvergenceDetected"] = {"CompleteOnConvergence": word}
        return found


def _given(**members: Any) -> Shape:
    return {name: value for name, value in members.items() if value is not None}
