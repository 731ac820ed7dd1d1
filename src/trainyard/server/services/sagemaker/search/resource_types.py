"""The types of resources that Search finds: their properties, sort orders and shapes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.experiments import storage
from trainyard.server.jobs import training, tuning
from trainyard.server.records.contract import Resource, SortBy
from trainyard.server.registry import GROUP, PACKAGE
from trainyard.server.services.contract import Call, Shape
from trainyard.server.services.sagemaker.experiments.components import component_description
from trainyard.server.services.sagemaker.experiments.experiments import experiment_description
from trainyard.server.services.sagemaker.experiments.trials import trial_description
from trainyard.server.services.sagemaker.registry.groups import group_description
from trainyard.server.services.sagemaker.registry.packages import package_description
from trainyard.server.services.sagemaker.search.conditions import NamedMembers
from trainyard.server.services.sagemaker.training.description import training_job_description
from trainyard.server.services.sagemaker.tuning.description import tuning_job_description

# What conditions test: members of the wire, with the Tags and whatever users named as mappings.
Candidate = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class IndexedProperty:
    """The indexed value that has a property, or that everything with the property has, if it is not exact."""

    value: str
    is_exact: bool = True
    has_numbers: bool = False
    is_lower_case: bool = False


@dataclass(frozen=True, slots=True)
class SearchableType:
    """One type of resource. `describe` turns a resource into its shape on the wire, and `candidate` that shape, with
    the resource's tags, into what conditions test.

    `has_lower_case_names` if the records store names in lower case only.
    """

    kind: str
    # The member of the answer that holds it.
    entity: str
    # The members that are its name, its ARN and its status, if it has one.
    name: str
    arn: str
    status: str
    properties: frozenset[str]
    # Members of the shape that Search does not return.
    hidden: frozenset[str]
    describe: Callable[[Call, Resource], Shape]
    candidate: Callable[[Shape, Mapping[str, str]], Candidate]
    has_lower_case_names: bool = False
    # The member that stored names begin with, before a slash.
    group: str = ""
    # The indexed value behind a property; None if there is none.
    indexed_property: Callable[[str], IndexedProperty | None] = lambda _: None
    # A property as the candidates have it. AWS accepts some in other letter cases.
    canonical: Callable[[str], str] = lambda path: path

    @property
    def orders(self) -> Mapping[str, SortBy]:
        """The sort orders that the records have an index for."""
        return {
            self.name: SortBy.NAME,
            "CreationTime": SortBy.CREATED,
            "LastModifiedTime": SortBy.MODIFIED,
            **({self.status: SortBy.STATUS} if self.status else {}),
        }


def _with_tags(shape: Shape, tags: Mapping[str, str]) -> Candidate:
    return shape | {"Tags": tags}


def _training_job_candidate(shape: Shape, tags: Mapping[str, str]) -> Candidate:
    metrics = {each["MetricName"]: each["Value"] for each in shape.get("FinalMetricDataList", ())}
    return shape | {"Tags": tags, "Metrics": metrics}


def _component_shape(_call: Call, resource: Resource) -> Shape:
    shape = component_description(resource)
    if parents := resource.body.get("parents"):
        shape["Parents"] = [{"TrialName": each["trial"], "ExperimentName": each["experiment"]} for each in parents]
    return shape | ({"RunName": resource.body["run_name"]} if resource.body.get("run_name") else {})


def _component_candidate(shape: Shape, tags: Mapping[str, str]) -> Candidate:
    parameters = {name: next(iter(value.values())) for name, value in shape["Parameters"].items()}
    return shape | {
        "Tags": tags,
        "Parameters": NamedMembers(parameters, of_plain=_PARAMETER_MEMBERS),
        "Metrics": NamedMembers({each["MetricName"]: each for each in shape["Metrics"]}),
        "InputArtifacts": NamedMembers(shape["InputArtifacts"]),
        "OutputArtifacts": NamedMembers(shape["OutputArtifacts"]),
    }


_PARAMETER_MEMBERS = frozenset({"Value", "NumberValue", "StringValue"})
_STATISTICS = ("Last", "Min", "Max", "Avg", "Count", "StdDev", "TimeStamp", "SourceArn", "MetricName")


def _canonical_component_property(path: str) -> str:
    """Return a property of a component in AWS's letter case, of which `metrics.loss.max` is accepted too."""
    first, _, rest = path.partition(".")
    first = {name.lower(): name for name in _COMPONENT_PROPERTIES}.get(first.lower(), first)
    if first != "Metrics":
        return f"{first}.{rest}" if rest else first
    name, _, statistic = rest.rpartition(".")
    known = {each.lower(): each for each in _STATISTICS}.get(statistic.lower())
    return f"Metrics.{name}.{known}" if name and known else f"Metrics.{rest}"


def _indexed_component_property(path: str) -> IndexedProperty | None:
    if path in (storage.PARENT_TRIAL, storage.PARENT_EXPERIMENT, storage.SOURCE_ARN):
        return IndexedProperty(path, is_lower_case=True)
    first, _, rest = path.partition(".")
    name, _, member = rest.rpartition(".")
    if first == "Parameters" and rest:
        return IndexedProperty(
            storage.parameter_value_name(name if member in _PARAMETER_MEMBERS else rest), has_numbers=True
        )
    if first == "Metrics" and member in _STATISTICS:
        is_exact = member in storage.INDEXED_STATISTICS
        statistic = member if is_exact else storage.INDEXED_STATISTICS[0]
        return IndexedProperty(storage.metric_value_name(name, statistic), is_exact, has_numbers=True)
    return None


def _indexed_trial_property(path: str) -> IndexedProperty | None:
    return IndexedProperty(storage.TRIAL_EXPERIMENT, is_lower_case=True) if path == "ExperimentName" else None


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

_SHARED_PROPERTIES = frozenset(
    {"DisplayName", "CreationTime", "CreatedBy", "LastModifiedTime", "LastModifiedBy", "Source", "Tags"}
)

_EXPERIMENT_PROPERTIES = _SHARED_PROPERTIES | {"ExperimentName", "ExperimentArn", "Description"}

_TRIAL_PROPERTIES = _SHARED_PROPERTIES | {"TrialName", "TrialArn", "ExperimentName", "MetadataProperties"}

_COMPONENT_PROPERTIES = _SHARED_PROPERTIES | {
    "TrialComponentName",
    "TrialComponentArn",
    "Status",
    "StartTime",
    "EndTime",
    "Parameters",
    "InputArtifacts",
    "OutputArtifacts",
    "Metrics",
    "MetadataProperties",
    "SourceDetail",
    "Parents",
    "RunName",
}

SEARCHABLE_TYPES: Mapping[str, SearchableType] = {
    "TrainingJob": SearchableType(
        kind=training.KIND,
        entity="TrainingJob",
        name="TrainingJobName",
        arn="TrainingJobArn",
        status="TrainingJobStatus",
        properties=_TRAINING_PROPERTIES,
        hidden=frozenset(
            {
                "ProfilingStatus",
                "ProfilerRuleConfigurations",
                "ProfilerRuleEvaluationStatuses",
                "RemoteDebugConfig",
                "InfraCheckConfig",
            }
        ),
        describe=lambda call, resource: training_job_description(resource, now=call.now),
        candidate=_training_job_candidate,
    ),
    "HyperParameterTuningJob": SearchableType(
        kind=tuning.KIND,
        entity="HyperParameterTuningJob",
        name="HyperParameterTuningJobName",
        arn="HyperParameterTuningJobArn",
        status="HyperParameterTuningJobStatus",
        properties=_TUNING_PROPERTIES,
        hidden=frozenset({"Autotune"}),
        describe=lambda call, resource: tuning_job_description(call.yard.records, resource, now=call.now),
        candidate=_with_tags,
        has_lower_case_names=True,
    ),
    "ModelPackage": SearchableType(
        kind=PACKAGE,
        entity="ModelPackage",
        # The records store the name of a version with its number.
        name="",
        arn="ModelPackageArn",
        status="ModelApprovalStatus",
        properties=_PACKAGE_PROPERTIES,
        hidden=frozenset(),
        describe=lambda _, resource: package_description(resource),
        candidate=_with_tags,
        group="ModelPackageGroupName",
    ),
    "ModelPackageGroup": SearchableType(
        kind=GROUP,
        entity="ModelPackageGroup",
        name="ModelPackageGroupName",
        arn="ModelPackageGroupArn",
        status="ModelPackageGroupStatus",
        properties=_GROUP_PROPERTIES,
        hidden=frozenset(),
        describe=lambda _, resource: group_description(resource),
        candidate=_with_tags,
    ),
    "Experiment": SearchableType(
        kind=storage.EXPERIMENT,
        entity="Experiment",
        name="ExperimentName",
        arn="ExperimentArn",
        status="",
        properties=_EXPERIMENT_PROPERTIES,
        hidden=frozenset(),
        describe=lambda _, resource: experiment_description(resource),
        candidate=_with_tags,
        has_lower_case_names=True,
    ),
    "ExperimentTrial": SearchableType(
        kind=storage.TRIAL,
        entity="Trial",
        name="TrialName",
        arn="TrialArn",
        status="",
        properties=_TRIAL_PROPERTIES,
        hidden=frozenset(),
        describe=lambda _, resource: trial_description(resource),
        candidate=_with_tags,
        has_lower_case_names=True,
        indexed_property=_indexed_trial_property,
    ),
    "ExperimentTrialComponent": SearchableType(
        kind=storage.COMPONENT,
        entity="TrialComponent",
        name="TrialComponentName",
        arn="TrialComponentArn",
        status="Status.PrimaryStatus",
        properties=_COMPONENT_PROPERTIES,
        hidden=frozenset(),
        describe=_component_shape,
        candidate=_component_candidate,
        has_lower_case_names=True,
        indexed_property=_indexed_component_property,
        canonical=_canonical_component_property,
    ),
}


def searchable_type(name: str) -> SearchableType:
    """Return the type of resource that a request searches for; InvalidRequest if the yard does not search for it."""
    searchable = SEARCHABLE_TYPES.get(name)
    if searchable is None:
        *others, last = SEARCHABLE_TYPES
        known = f"{', '.join(others)} and {last}"
        raise InvalidRequest(f"Trainyard does not search for {name} yet; search for {known}.")
    return searchable
