"""What can be asked of a tuning job, and the CreateHyperParameterTuningJob request that asks it."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from trainyard.estimator import ESTIMATOR_CLASS, ESTIMATOR_MODULE, EstimatorBase, Framework
from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import Shape, require_word
from trainyard.parameter import KINDS, CategoricalParameter, ParameterRange
from trainyard.training_request import Tags
from trainyard.tuning_configs import (
    InstanceConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
)

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
# What the API has no place for, by the options of an estimator that ask for it.
_LEFT_OUT = {
    "DebugRuleConfigurations": "rules",
    "DebugHookConfig": "debugger_hook_config",
    "TensorBoardOutputConfig": "tensorboard_output_config",
    "ProfilerConfig": "disable_profiler",
}
_OWN_PACKAGE, _MIRRORED_PACKAGE = "trainyard.", "sagemaker."


class LaterTuningKeywords(TypedDict, total=False):
    """What nobody gives by position."""

    max_runtime_in_seconds: int | None
    tags: Tags | None
    warm_start_config: WarmStartConfig | None
    early_stopping_type: str
    random_seed: int | None
    autotune: bool
    prune_on: Sequence[str]


class TuningKeywords(LaterTuningKeywords, total=False):
    """The fields of TuningOptions, for those who hand keywords on."""

    strategy: str
    objective_type: str
    max_jobs: int | None
    max_parallel_jobs: int
    base_tuning_job_name: str | None
    strategy_config: StrategyConfig | None
    completion_criteria_config: TuningJobCompletionCriteriaConfig | None


@dataclass(kw_only=True, eq=False)
class TuningOptions:
    """What can be said of a tuning job besides its algorithms. May be changed between one tuning job and the next."""

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
    """One estimator of a tuning job, and what is tuned of it. `metric_definitions` default to the estimator's own."""

    estimator: EstimatorBase
    objective_metric_name: str
    ranges: Ranges
    metric_definitions: MetricDefinitions | None = None
    kept_static: Sequence[str] | None = None
    instance_configs: Sequence[InstanceConfig] | None = None

    @property
    def is_json(self) -> bool:
        """Whether its categorical values are JSON, as scripts of frameworks read them."""
        return isinstance(self.estimator, Framework)


@dataclass(frozen=True, slots=True)
class Asked:
    """An algorithm as one call of `fit` asks for it. `name` is empty for an only one that has none."""

    name: str
    algorithm: Algorithm
    training: Shape  # the request of a training job of it
    has_class_metadata: bool = False


def require_words(options: TuningOptions) -> None:
    """InvalidRequest for an option that is none of the words that it can be, or that goes with no other."""
    require_word("strategy", options.strategy, STRATEGIES)
    require_word("objective_type", options.objective_type, ("Maximize", "Minimize"))
    require_word("early_stopping_type", options.early_stopping_type, EARLY_STOPPING_TYPES)
    if options.strategy == "Hyperband" and options.early_stopping_type != "Off":
        raise InvalidRequest(
            f'Hyperband stops training jobs itself; leave early_stopping_type="{options.early_stopping_type}" out.'
        )


def tuning_request(name: str, options: TuningOptions, asked: Sequence[Asked]) -> Shape:
    """The members of CreateHyperParameterTuningJob; what was not asked for is not there."""
    request: Shape = {"HyperParameterTuningJobName": name, "HyperParameterTuningJobConfig": _config(options)}
    if options.autotune:
        request["Autotune"] = {"Mode": "Enabled"}
    definitions = [_definition(each, options) for each in asked]
    (first, *_) = asked
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
    """The ranges as a request has them. A script of a framework reads JSON, so its categorical values are JSON."""
    shapes: Shape = {f"{kind.kind}ParameterRanges": [] for kind in KINDS}
    for name, given in ranges.items():
        if is_json and isinstance(given, CategoricalParameter):
            shape = given.as_json_range(name)
        else:
            shape = given.as_tuning_range(name)
        shapes[f"{given.kind}ParameterRanges"].append(shape)
    return shapes


def _config(options: TuningOptions) -> Shape:
    limits = _given(
        MaxNumberOfTrainingJobs=options.max_jobs,
        MaxParallelTrainingJobs=options.max_parallel_jobs,
        MaxRuntimeInSeconds=options.max_runtime_in_seconds,
    )
    stopping = "Auto" if options.early_stopping_type == "Curve" else options.early_stopping_type
    strategy, completion = options.strategy_config, options.completion_criteria_config
    return _given(
        Strategy=options.strategy,
        ResourceLimits=limits,
        TrainingJobEarlyStoppingType=stopping,
        RandomSeed=options.random_seed,
        StrategyConfig=strategy.to_input_req() if strategy else None,
        TuningJobCompletionCriteria=completion.to_input_req() if completion else None,
    )


def _definition(asked: Asked, options: TuningOptions) -> Shape:
    algorithm, training = asked.algorithm, asked.training
    _say_what_is_left_out(asked)
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
    definition |= _hyperparameters(asked, options)
    return {"DefinitionName": asked.name, **definition} if asked.name else definition


def _say_what_is_left_out(asked: Asked) -> None:
    options = [option for member, option in _LEFT_OUT.items() if member in asked.training]
    if options:
        log.warning("a tuning job has no place for %s; prune_on names rules that stop its jobs", ", ".join(options))


def _resources(algorithm: Algorithm, resources: Shape) -> Shape:
    if algorithm.instance_configs:
        given = _given(VolumeKmsKeyId=resources.get("VolumeKmsKeyId"))
        given["InstanceConfigs"] = [each.to_input_req() for each in algorithm.instance_configs]
        return {"HyperParameterTuningResourceConfig": given}
    if "InstanceGroups" in resources:
        return {"ResourceConfig": resources}
    members = ("InstanceCount", "InstanceType", "VolumeSizeInGB", "VolumeKmsKeyId")
    return {"HyperParameterTuningResourceConfig": {name: resources[name] for name in members if name in resources}}


def _hyperparameters(asked: Asked, options: TuningOptions) -> Shape:
    algorithm = asked.algorithm
    static = {
        name: text for name, text in asked.training.get("HyperParameters", {}).items() if name not in algorithm.ranges
    }
    ranges = range_shapes(algorithm.ranges, is_json=algorithm.is_json)
    if options.autotune:
        free = _free(algorithm, static)
        ranges["AutoParameters"] = [{"Name": name, "ValueHint": static.pop(name)} for name in free]
    if asked.has_class_metadata or isinstance(algorithm.estimator, Framework):
        static |= _class_metadata(algorithm.estimator)
    return {"StaticHyperParameters": static, "HyperParameterRanges": ranges}


def _free(algorithm: Algorithm, static: Mapping[str, str]) -> list[str]:
    """The hyperparameters of the user's own for which Autotune shall find a range."""
    own, kept = algorithm.estimator.hyperparameters(), set(algorithm.kept_static or ())
    unknown = sorted(kept - set(own))
    if unknown:
        raise InvalidRequest(
            f"hyperparameters_to_keep_static names {', '.join(unknown)}, which the estimator has no value for."
        )
    return [name for name in static if name in own and name not in kept]


def _class_metadata(estimator: EstimatorBase) -> dict[str, str]:
    """Which class can attach to the tuning job; those that mirror one of the sagemaker SDK are named as there."""
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


def _given(**members: Any) -> Shape:
    return {name: value for name, value in members.items() if value is not None}
