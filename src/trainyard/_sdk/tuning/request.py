"""The options of a tuning job, and the CreateHyperParameterTuningJob request built from them."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from trainyard._sdk.training.options import Tags
from trainyard._sdk.tuning.configs import (
    InstanceConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
)
from trainyard.estimator import ESTIMATOR_CLASS, ESTIMATOR_MODULE, EstimatorBase, Framework
from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import Shape, require_word
from trainyard.parameter import KINDS, CategoricalParameter, ParameterRange

STRATEGIES = ("Bayesian", "Random", "Hyperband", "Grid")
EARLY_STOPPING_TYPES = ("Off", "Auto", "Curve")
EARLY_STOPPING_TAG, CURVE = "trainyard:early-stopping", "curve"
PRUNE_ON_TAG = "trainyard:prune-on"

Ranges = Mapping[str, ParameterRange]
MetricDefinitions = Sequence[Mapping[str, str]]

log = logging.getLogger(__name__)

# The members of a training request that the definition of a tuning job has by the same names.
_SHARED = (
    "RoleArn",
    "InputDataConfig",
    "VpcConfig",
    "OutputDataConfig",
    "StoppingCondition",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
    "CheckpointConfig",
    "RetryStrategy",
    "Environment",
)
_OF_SPECIFICATION = ("TrainingImage", "TrainingInputMode", "MetricDefinitions")
# Members that the API of tuning jobs does not have, with the options of an estimator that set them.
_UNSUPPORTED = {
    "DebugRuleConfigurations": "rules",
    "DebugHookConfig": "debugger_hook_config",
    "TensorBoardOutputConfig": "tensorboard_output_config",
    "ProfilerConfig": "profiler_config or disable_profiler",
}
_OWN_PACKAGE, _MIRRORED_PACKAGE = "trainyard.", "sagemaker."


class LaterTuningKeywords(TypedDict, total=False):
    """The options that `HyperparameterTuner.create` takes by keyword only."""

    max_runtime_in_seconds: int | None
    tags: Tags | None
    warm_start_config: WarmStartConfig | None
    early_stopping_type: str
    random_seed: int | None
    autotune: bool
    prune_on: Sequence[str]


class TuningKeywords(LaterTuningKeywords, total=False):
    """The fields of `TuningOptions`, as keyword arguments."""

    strategy: str
    objective_type: str
    max_jobs: int | None
    max_parallel_jobs: int
    base_tuning_job_name: str | None
    strategy_config: StrategyConfig | None
    completion_criteria_config: TuningJobCompletionCriteriaConfig | None


@dataclass(kw_only=True, eq=False)
class TuningOptions:
    """The options of a tuning job apart from its algorithms.

    Every option is also an attribute of the tuner and can be changed between two tuning jobs.

    Args:
        strategy: `Bayesian`, `Random`, `Hyperband` or `Grid`.
        objective_type: `Maximize` or `Minimize`.
        max_jobs: Number of training jobs. Default: 1, or no limit if there is another limit or a grid.
        max_parallel_jobs: How many training jobs may run at the same time.
        max_runtime_in_seconds: Time limit of the tuning job, in seconds.
        tags: Tags of the tuning job and its training jobs: a mapping, or a list of `{"Key": …, "Value": …}`.
        base_tuning_job_name: Prefix of generated tuning job names. Default: the name of the image.
        warm_start_config: The ended tuning jobs to learn from.
        strategy_config: The configuration of Hyperband.
        completion_criteria_config: Conditions that end the tuning job early.
        early_stopping_type: `Off`, `Auto`, which stops training jobs that are worse than the median, or `Curve`, which
            stops training jobs whose learning curves are unlikely to reach the best. `Curve` is Trainyard's own.
        random_seed: Seed of the search, to repeat it.
        autotune: Whether the yard chooses ranges and other settings.
        prune_on: Names of debugger rules that stop a training job when they find an issue. Trainyard's own.
    """

    strategy: str = "Bayesian"
    objective_type: str = "Maximize"
    max_jobs: int | None = None
    max_parallel_jobs: int = 1
    max_runtime_in_seconds: int | None = None
    tags: Tags | None = None
    base_tuning_job_name: str | None = None
    warm_start_config: WarmStartConfig | None = None
    strategy_config: StrategyConfig | None = None
    completion_criteria_config: TuningJobCompletionCriteriaConfig | None = None
    early_stopping_type: str = "Off"
    random_seed: int | None = None
    autotune: bool = False
    prune_on: Sequence[str] = ()


@dataclass(eq=False, slots=True)
class Algorithm:
    """One estimator of a tuning job and its ranges. The default of `metric_definitions` is that of the estimator."""

    estimator: EstimatorBase
    objective_metric_name: str
    ranges: Ranges
    metric_definitions: MetricDefinitions | None = None
    static_names: Sequence[str] | None = None
    instance_configs: Sequence[InstanceConfig] | None = None

    @property
    def is_json(self) -> bool:
        """Whether its categorical values are JSON: framework scripts read their hyperparameters as JSON."""
        return isinstance(self.estimator, Framework)


@dataclass(frozen=True, slots=True)
class AlgorithmRequest:
    """An algorithm with the training request of one call of `fit`. `name` is empty for a single unnamed algorithm."""

    name: str
    algorithm: Algorithm
    training: Shape
    has_class_metadata: bool = False


def require_consistent(options: TuningOptions) -> None:
    """Raise InvalidRequest for an option with an unknown value, or for options that contradict each other."""
    require_word("strategy", options.strategy, STRATEGIES)
    require_word("objective_type", options.objective_type, ("Maximize", "Minimize"))
    require_word("early_stopping_type", options.early_stopping_type, EARLY_STOPPING_TYPES)
    if options.strategy == "Hyperband" and options.early_stopping_type != "Off":
        raise InvalidRequest(
            f'Hyperband stops training jobs itself; leave early_stopping_type="{options.early_stopping_type}" out.'
        )


def tuning_request(name: str, options: TuningOptions, algorithms: Sequence[AlgorithmRequest]) -> Shape:
    """Return the members of CreateHyperParameterTuningJob; options that were not set are left out."""
    request: Shape = {"HyperParameterTuningJobName": name, "HyperParameterTuningJobConfig": _config(options)}
    if options.autotune:
        request["Autotune"] = {"Mode": "Enabled"}
    definitions = [_definition(each, options) for each in algorithms]
    (first, *_) = algorithms
    if first.name:
        request["TrainingJobDefinitions"] = definitions
    else:
        objective, ranges = definitions[0].pop("TuningObjective"), definitions[0].pop("HyperParameterRanges")
        request["HyperParameterTuningJobConfig"] |= {
            "HyperParameterTuningJobObjective": objective,
            "ParameterRanges": ranges,
        }
        request["TrainingJobDefinition"] = definitions[0]
    if options.warm_start_config:
        request["WarmStartConfig"] = options.warm_start_config.to_input_req()
    if tags := _tags(options, first.training.get("Tags", ())):
        request["Tags"] = tags
    return request


def range_shapes(ranges: Ranges, *, is_json: bool) -> Shape:
    """Return the ranges in the form of the API. Framework scripts read JSON, so their categorical values are JSON."""
    shapes: Shape = {f"{kind.kind}ParameterRanges": [] for kind in KINDS}
    for name, given in ranges.items():
        if is_json and isinstance(given, CategoricalParameter):
            shape = given.as_json_range(name)
        else:
            shape = given.as_tuning_range(name)
        shapes[f"{given.kind}ParameterRanges"].append(shape)
    return shapes


def _config(options: TuningOptions) -> Shape:
    limits = _drop_none(
        MaxNumberOfTrainingJobs=options.max_jobs,
        MaxParallelTrainingJobs=options.max_parallel_jobs,
        MaxRuntimeInSeconds=options.max_runtime_in_seconds,
    )
    stopping = "Auto" if options.early_stopping_type == "Curve" else options.early_stopping_type
    strategy, completion = options.strategy_config, options.completion_criteria_config
    return _drop_none(
        Strategy=options.strategy,
        ResourceLimits=limits,
        TrainingJobEarlyStoppingType=stopping,
        RandomSeed=options.random_seed,
        StrategyConfig=strategy.to_input_req() if strategy else None,
        TuningJobCompletionCriteria=completion.to_input_req() if completion else None,
    )


def _definition(request: AlgorithmRequest, options: TuningOptions) -> Shape:
    algorithm, training = request.algorithm, request.training
    _warn_of_unsupported(request)
    specification = training["AlgorithmSpecification"]
    definition: Shape = {member: training[member] for member in _SHARED if member in training}
    definition["AlgorithmSpecification"] = {
        member: specification[member] for member in _OF_SPECIFICATION if member in specification
    }
    if algorithm.metric_definitions is not None:
        definitions = [dict(each) for each in algorithm.metric_definitions]
        definition["AlgorithmSpecification"]["MetricDefinitions"] = definitions
    definition |= _resources(algorithm, training["ResourceConfig"])
    definition["TuningObjective"] = {"Type": options.objective_type, "MetricName": algorithm.objective_metric_name}
    definition |= _hyperparameters(request, options)
    return {"DefinitionName": request.name, **definition} if request.name else definition


def _warn_of_unsupported(request: AlgorithmRequest) -> None:
    options = [option for member, option in _UNSUPPORTED.items() if member in request.training]
    if options:
        log.warning("tuning jobs do not support %s; use prune_on for rules that stop training jobs", ", ".join(options))


def _resources(algorithm: Algorithm, resources: Shape) -> Shape:
    if algorithm.instance_configs:
        given = _drop_none(VolumeKmsKeyId=resources.get("VolumeKmsKeyId"))
        given["InstanceConfigs"] = [each.to_input_req() for each in algorithm.instance_configs]
        return {"HyperParameterTuningResourceConfig": given}
    if "InstanceGroups" in resources:
        return {"ResourceConfig": resources}
    members = ("InstanceCount", "InstanceType", "VolumeSizeInGB", "VolumeKmsKeyId")
    return {"HyperParameterTuningResourceConfig": {name: resources[name] for name in members if name in resources}}


def _hyperparameters(request: AlgorithmRequest, options: TuningOptions) -> Shape:
    algorithm = request.algorithm
    static = {
        name: text for name, text in request.training.get("HyperParameters", {}).items() if name not in algorithm.ranges
    }
    ranges = range_shapes(algorithm.ranges, is_json=algorithm.is_json)
    if options.autotune:
        names = _autotuned_names(algorithm, static)
        ranges["AutoParameters"] = [{"Name": name, "ValueHint": static.pop(name)} for name in names]
    if request.has_class_metadata or isinstance(algorithm.estimator, Framework):
        static |= _class_metadata(algorithm.estimator)
    return {"StaticHyperParameters": static, "HyperParameterRanges": ranges}


def _autotuned_names(algorithm: Algorithm, static: Mapping[str, str]) -> list[str]:
    """Return the user's hyperparameters for which Autotune chooses a range."""
    own, static_names = algorithm.estimator.hyperparameters(), set(algorithm.static_names or ())
    unknown = sorted(static_names - set(own))
    if unknown:
        raise InvalidRequest(
            f"hyperparameters_to_keep_static names {', '.join(unknown)}; the estimator has no value for it."
        )
    return [name for name in static if name in own and name not in static_names]


def _class_metadata(estimator: EstimatorBase) -> dict[str, str]:
    """Return the class that can attach to the tuning job. Our own classes get their names in the sagemaker SDK."""
    module = type(estimator).__module__
    if module.startswith(_OWN_PACKAGE):
        module = _MIRRORED_PACKAGE + module.removeprefix(_OWN_PACKAGE)
    return {ESTIMATOR_CLASS: json.dumps(type(estimator).__name__), ESTIMATOR_MODULE: json.dumps(module)}


def _tags(options: TuningOptions, of_estimator: Sequence[Mapping[str, str]]) -> list[Shape]:
    own = options.tags
    listed = [{"Key": key, "Value": value} for key, value in own.items()] if isinstance(own, Mapping) else own
    tags = {tag["Key"]: tag["Value"] for tag in (*of_estimator, *(listed or ()))}
    if options.early_stopping_type == "Curve":
        tags[EARLY_STOPPING_TAG] = CURVE
    if options.prune_on:
        tags[PRUNE_ON_TAG] = " ".join(options.prune_on)
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _drop_none(**members: Any) -> Shape:
    return {name: value for name, value in members.items() if value is not None}
