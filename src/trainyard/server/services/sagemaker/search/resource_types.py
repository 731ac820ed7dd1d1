"""The types of resources that Search finds: their properties, sort orders and shapes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.jobs import training, tuning
from trainyard.server.records.contract import Resource, SortBy
from trainyard.server.registry import GROUP, PACKAGE
from trainyard.server.services.contract import Call
from trainyard.server.services.sagemaker.registry.groups import group_description
from trainyard.server.services.sagemaker.registry.packages import package_description
from trainyard.server.services.sagemaker.training.description import training_job_description
from trainyard.server.services.sagemaker.tuning.description import tuning_job_description

Candidate = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SearchableType:
    """One type of resource. `candidate` turns a resource into what conditions test, with its Tags as a mapping.

    `has_lower_case_names` if the records store names in lower case only.
    """

    kind: str
    # The member of the answer that holds it.
    entity: str
    # The members that are its name and its status.
    name: str
    status: str
    properties: frozenset[str]
    # Members that conditions can test but that Search does not return.
    hidden: frozenset[str]
    candidate: Callable[[Call, Resource], Candidate]
    has_lower_case_names: bool = False
    # The member that stored names begin with, before a slash.
    group: str = ""

    @property
    def orders(self) -> Mapping[str, SortBy]:
        """The sort orders that the records have an index for."""
        return {
            self.name: SortBy.NAME,
            "CreationTime": SortBy.CREATED,
            "LastModifiedTime": SortBy.MODIFIED,
            self.status: SortBy.STATUS,
        }


def _training_job_candidate(call: Call, resource: Resource) -> Candidate:
    shape = training_job_description(resource, now=call.now)
    tags = call.yard.records.tags(resource.key.account, shape["TrainingJobArn"])
    metrics = {each["MetricName"]: each["Value"] for each in shape.get("FinalMetricDataList", ())}
    return shape | {"Tags": tags, "Metrics": metrics}


def _tuning_job_candidate(call: Call, resource: Resource) -> Candidate:
    shape = tuning_job_description(call.yard.records, resource, now=call.now)
    return shape | {"Tags": call.yard.records.tags(resource.key.account, shape["HyperParameterTuningJobArn"])}


def _package_candidate(call: Call, resource: Resource) -> Candidate:
    shape = package_description(resource)
    return shape | {"Tags": call.yard.records.tags(resource.key.account, shape["ModelPackageArn"])}


def _group_candidate(call: Call, resource: Resource) -> Candidate:
    shape = group_description(resource)
    return shape | {"Tags": call.yard.records.tags(resource.key.account, shape["ModelPackageGroupArn"])}


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

_PACKAGE_PROPERTIES = frozenset(
    {
        "ModelPackageName",
        "ModelPackageGroupName",
        "ModelPackageVersion",
        "ModelPackageRegistrationType",
        "ModelPackageArn",
        "ModelPackageDescription",
        "CreationTime",
        "InferenceSpecification",
        "ModelPackageStatus",
        "ModelApprovalStatus",
        "ApprovalDescription",
        "CreatedBy",
        "MetadataProperties",
        "ModelMetrics",
        "LastModifiedTime",
        "LastModifiedBy",
        "Domain",
        "Task",
        "SamplePayloadUrl",
        "AdditionalInferenceSpecifications",
        "SourceUri",
        "ModelCard",
        "ModelLifeCycle",
        "CustomerMetadataProperties",
        "Tags",
    }
)

_GROUP_PROPERTIES = frozenset(
    {
        "ModelPackageGroupName",
        "ModelPackageGroupArn",
        "ModelPackageGroupDescription",
        "CreationTime",
        "CreatedBy",
        "ModelPackageGroupStatus",
        "Tags",
    }
)

SEARCHABLE_TYPES: Mapping[str, SearchableType] = {
    "TrainingJob": SearchableType(
        kind=training.KIND,
        entity="TrainingJob",
        name="TrainingJobName",
        status="TrainingJobStatus",
        properties=_TRAINING_PROPERTIES,
        hidden=frozenset(
            {
                "ProfilingStatus",
                "ProfilerRuleConfigurations",
                "ProfilerRuleEvaluationStatuses",
                "RemoteDebugConfig",
                "InfraCheckConfig",
                "Metrics",
            }
        ),
        candidate=_training_job_candidate,
    ),
    "HyperParameterTuningJob": SearchableType(
        kind=tuning.KIND,
        entity="HyperParameterTuningJob",
        name="HyperParameterTuningJobName",
        status="HyperParameterTuningJobStatus",
        properties=_TUNING_PROPERTIES,
        hidden=frozenset({"Autotune"}),
        candidate=_tuning_job_candidate,
        has_lower_case_names=True,
    ),
    "ModelPackage": SearchableType(
        kind=PACKAGE,
        entity="ModelPackage",
        # The records store the name of a version with its number.
        name="",
        status="ModelApprovalStatus",
        properties=_PACKAGE_PROPERTIES,
        hidden=frozenset(),
        candidate=_package_candidate,
        group="ModelPackageGroupName",
    ),
    "ModelPackageGroup": SearchableType(
        kind=GROUP,
        entity="ModelPackageGroup",
        name="ModelPackageGroupName",
        status="ModelPackageGroupStatus",
        properties=_GROUP_PROPERTIES,
        hidden=frozenset(),
        candidate=_group_candidate,
    ),
}


def searchable_type(name: str) -> SearchableType:
    """Return the type of resource that a request searches for; InvalidRequest if the yard does not search for it."""
    searchable = SEARCHABLE_TYPES.get(name)
    if searchable is None:
        known = ", ".join(SEARCHABLE_TYPES)
        raise InvalidRequest(f"Trainyard does not search for {name} yet; search for one of {known}.")
    return searchable
