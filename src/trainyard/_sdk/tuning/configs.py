"""Configurations of a tuning job: warm start, strategy, instances and completion criteria."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Self

from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import Shape


class WarmStartTypes(Enum):
    """How a warm-started tuning job relates to its parents."""

    IDENTICAL_DATA_AND_ALGORITHM = "IdenticalDataAndAlgorithm"
    TRANSFER_LEARNING = "TransferLearning"


class WarmStartConfig:
    """The ended tuning jobs that a new one learns from.

    Args:
        warm_start_type: How the new job relates to its parents.
        parents: Names of the parent tuning jobs.

    Raises:
        InvalidRequest: `warm_start_type` is not a `WarmStartTypes`, or there are no parents.
    """

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
        """Return the configuration of a job description; None if the job had no warm start.

        Args:
            warm_start_config: The WarmStartConfig of the description.
        """
        if not warm_start_config:
            return None
        parents = warm_start_config["ParentHyperParameterTuningJobs"]
        names = [parent["HyperParameterTuningJobName"] for parent in parents]
        return cls(WarmStartTypes(warm_start_config["WarmStartType"]), names)

    def to_input_req(self) -> Shape:
        """Return the configuration in the form of the SageMaker API."""
        parents = [{"HyperParameterTuningJobName": parent} for parent in sorted(self.parents)]
        return {"WarmStartType": self.type.value, "ParentHyperParameterTuningJobs": parents}


class HyperbandStrategyConfig:
    """The resource of Hyperband: how often a training job reports the objective, for example once per epoch.

    Args:
        max_resource: The most reports of a training job.
        min_resource: The fewest reports of a training job before it can be stopped.
    """

    def __init__(self, max_resource: int | None = None, min_resource: int | None = None) -> None:
        self.max_resource, self.min_resource = max_resource, min_resource

    @classmethod
    def from_job_desc(cls, hyperband_strategy_config: Mapping[str, Any]) -> Self:
        """Return the configuration of a job description.

        Args:
            hyperband_strategy_config: The HyperbandStrategyConfig of the description.
        """
        return cls(hyperband_strategy_config.get("MaxResource"), hyperband_strategy_config.get("MinResource"))

    def to_input_req(self) -> Shape:
        """Return the configuration in the form of the SageMaker API."""
        return _drop_none(MinResource=self.min_resource, MaxResource=self.max_resource)


class StrategyConfig:
    """The configuration of a strategy. Only Hyperband has one.

    Args:
        hyperband_strategy_config: The configuration of Hyperband.
    """

    def __init__(self, hyperband_strategy_config: HyperbandStrategyConfig) -> None:
        self.hyperband_strategy_config = hyperband_strategy_config

    @classmethod
    def from_job_desc(cls, strategy_config: Mapping[str, Any]) -> Self:
        """Return the configuration of a job description.

        Args:
            strategy_config: The StrategyConfig of the description.
        """
        return cls(HyperbandStrategyConfig.from_job_desc(strategy_config["HyperbandStrategyConfig"]))

    def to_input_req(self) -> Shape:
        """Return the configuration in the form of the SageMaker API."""
        return {"HyperbandStrategyConfig": self.hyperband_strategy_config.to_input_req()}


class InstanceConfig:
    """Instances for training jobs, instead of those of the estimator.

    Args:
        instance_count: Number of instances.
        instance_type: Type of the instances, such as `ml.m5.large`.
        volume_size: Size of the volume of each instance, in GB.
    """

    def __init__(
        self, instance_count: int | None = None, instance_type: str | None = None, volume_size: int = 30
    ) -> None:
        self.instance_count, self.instance_type, self.volume_size = instance_count, instance_type, volume_size

    @classmethod
    def from_job_desc(cls, instance_config: Mapping[str, Any]) -> Self:
        """Return the configuration of a job description.

        Args:
            instance_config: The InstanceConfig entry of the description.
        """
        described = instance_config
        return cls(described["InstanceCount"], described["InstanceType"], described["VolumeSizeInGB"])

    def to_input_req(self) -> Shape:
        """Return the configuration in the form of the SageMaker API."""
        return _drop_none(
            InstanceCount=self.instance_count, InstanceType=self.instance_type, VolumeSizeInGB=self.volume_size
        )


class TuningJobCompletionCriteriaConfig:
    """Conditions that end a tuning job before it has run all its training jobs.

    Args:
        max_number_of_training_jobs_not_improving: End after this many training jobs without a better one.
        complete_on_convergence: Whether to end when no better training job is expected.
        target_objective_metric_value: End when the objective has reached this value.
    """

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
        """Return the configuration of a job description.

        Args:
            completion_criteria_config: The TuningJobCompletionCriteria of the description.
        """
        described = completion_criteria_config
        convergence = described.get("ConvergenceDetected", {}).get("CompleteOnConvergence")
        return cls(
            described.get("BestObjectiveNotImproving", {}).get("MaxNumberOfTrainingJobsNotImproving"),
            None if convergence is None else convergence == "Enabled",
            described.get("TargetObjectiveMetricValue"),
        )

    def to_input_req(self) -> Shape:
        """Return the configuration in the form of the SageMaker API."""
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


def _drop_none(**members: Any) -> Shape:
    return {name: value for name, value in members.items() if value is not None}
