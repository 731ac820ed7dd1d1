"""What Search knows of each kind of resource: its properties, its orders, and how it is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.server import jobs, tuning
from trainyard.server.records.contract import Resource, SortBy
from trainyard.server.services.contract import Call
from trainyard.server.services.sagemaker.described import described
from trainyard.server.services.sagemaker.tuning import described as tuning_described

Candidate = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Searched:
    """One kind of resource. `candidate` is one of them as conditions see it, with its Tags as a mapping.

    Where `is_folded`, the records know names in lower case only.
    """

    kind: str
    entity: str  # as the answer calls it
    name: str  # the members that are its name and its status
    status: str
    properties: frozenset[str]
    only_seen: frozenset[str]  # what a description tells, or a filter sees, and Search does not tell
    candidate: Callable[[Call, Resource], Candidate]
    is_folded: bool = False

    @property
    def orders(self) -> Mapping[str, SortBy]:
        """The orders that the records keep."""
        return {
            self.name: SortBy.NAME,
            "CreationTime": SortBy.CREATED,
            "LastModifiedTime": SortBy.MODIFIED,
            self.status: SortBy.STATUS,
        }


def _training_job(call: Call, resource: Resource) -> Candidate:
    shape = described(resource, now=call.now)
    tags = call.yard.records.tags(resource.key.account, shape["TrainingJobArn"])
    metrics = {each["MetricName"]: each["Value"] for each in shape.get("FinalMetricDataList", ())}
    return shape | {"Tags": tags, "Metrics": metrics}


def _tuning_job(call: Call, resource: Resource) -> Candidate:
    shape = tuning_described.described(call.yard.records, resource, now=call.now)
    return shape | {"Tags": call.yard.records.tags(resource.key.account, shape["HyperParameterTuningJobArn"])}


_TRAINING_PROPERTIES = frozenset(
    {
        "TrainingJobName",
        "TrainingJobArn",
        "TuningJobArn",
        "ModelArtifacts",
        "TrainingJobStatus",
        "SecondaryStatus",
        "FailureReason",
        "HyperParameters",
        "AlgorithmSpecification",
        "RoleArn",
        "InputDataConfig",
        "OutputDataConfig",
        "ResourceConfig",
        "VpcConfig",
        "StoppingCondition",
        "CreationTime",
        "TrainingStartTime",
        "TrainingEndTime",
        "LastModifiedTime",
        "SecondaryStatusTransitions",
        "FinalMetricDataList",
        "EnableNetworkIsolation",
        "EnableInterContainerTrafficEncryption",
        "EnableManagedSpotTraining",
        "TrainingTimeInSeconds",
        "BillableTimeInSeconds",
        "DebugHookConfig",
        "DebugRuleConfigurations",
        "DebugRuleEvaluationStatuses",
        "TensorBoardOutputConfig",
        "ExperimentConfig",
        "ProfilerConfig",
        "Environment",
        "RetryStrategy",
        "WarmPoolStatus",
        "Tags",
        "Metrics",
    }
)

_TUNING_PROPERTIES = frozenset(
    {
        "HyperParameterTuningJobName",
        "HyperParameterTuningJobArn",
        "HyperParameterTuningJobConfig",
        "TrainingJobDefinition",
        "TrainingJobDefinitions",
        "HyperParameterTuningJobStatus",
        "CreationTime",
        "HyperParameterTuningEndTime",
        "LastModifiedTime",
        "TrainingJobStatusCounters",
        "ObjectiveStatusCounters",
        "BestTrainingJob",
        "OverallBestTrainingJob",
        "WarmStartConfig",
        "FailureReason",
        "TuningJobCompletionDetails",
        "ConsumedResources",
        "Tags",
    }
)

SEARCHED: Mapping[str, Searched] = {
    "TrainingJob": Searched(
        kind=jobs.KIND,
        entity="TrainingJob",
        name="TrainingJobName",
        status="TrainingJobStatus",
        properties=_TRAINING_PROPERTIES,
        only_seen=frozenset(
            {"ProfilingStatus", "ProfilerRuleConfigurations", "RemoteDebugConfig", "InfraCheckConfig", "Metrics"}
        ),
        candidate=_training_job,
    ),
    "HyperParameterTuningJob": Searched(
        kind=tuning.KIND,
        entity="HyperParameterTuningJob",
        name="HyperParameterTuningJobName",
        status="HyperParameterTuningJobStatus",
        properties=_TUNING_PROPERTIES,
        only_seen=frozenset({"Autotune"}),
        candidate=_tuning_job,
        is_folded=True,
    ),
}
