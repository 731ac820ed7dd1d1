"""The CreateTrainingJob request of a trial."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.training.rule_configurations import BUILT_IN_IMAGE

# The hyperparameter in which AWS gives a program the name of the objective metric.
OBJECTIVE = "_tuning_objective_metric"

_COPIED = (
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "OutputDataConfig",
    "VpcConfig",
    "StoppingCondition",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
    "RetryStrategy",
    "Environment",
)
_RESOURCES, _TUNING_RESOURCES = "ResourceConfig", "HyperParameterTuningResourceConfig"
_STOP = json.dumps([{"name": "stoptraining"}])


def definitions_in(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the training job definitions of a tuning job's request."""
    several: Sequence[Mapping[str, Any]] = request.get("TrainingJobDefinitions", ())
    return several or [request["TrainingJobDefinition"]]


def definition_in(request: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next(each for each in definitions_in(request) if each.get("DefinitionName", "") == name)


def trial_request(
    definition: Mapping[str, Any],
    values: Mapping[str, str],
    *,
    name: str,
    metric: str,
    resources: Mapping[str, Any],
    pruning_rules: Iterable[str] = (),
) -> Shape:
    """Return the request for a training job with these values of the tuned hyperparameters."""
    shape: Shape = {member: definition[member] for member in _COPIED if member in definition}
    tuned = {**definition.get("StaticHyperParameters", {}), **values, OBJECTIVE: metric}
    shape |= {"TrainingJobName": name, "HyperParameters": tuned, _RESOURCES: dict(resources)}
    if "CheckpointConfig" in definition:
        shape["CheckpointConfig"] = _checkpoints(definition["CheckpointConfig"], name)
    return shape | _pruning_members(pruning_rules, definition["OutputDataConfig"]["S3OutputPath"])


def resource_choices(definition: Mapping[str, Any]) -> Sequence[Shape]:
    """Return the possible ResourceConfigs of a trial, preferred first; InvalidRequest if they conflict."""
    if (_RESOURCES in definition) == (_TUNING_RESOURCES in definition):
        raise InvalidRequest(f"A training job definition needs either a {_RESOURCES} or a {_TUNING_RESOURCES}.")
    if _RESOURCES in definition:
        return [dict(definition[_RESOURCES])]
    given = {member: value for member, value in definition[_TUNING_RESOURCES].items() if member != "AllocationStrategy"}
    choices = given.pop("InstanceConfigs", ())
    if not choices:
        return [given]
    for member in ("InstanceType", "InstanceCount", "VolumeSizeInGB"):
        if member in given:
            raise InvalidRequest(
                f"{_TUNING_RESOURCES} has InstanceConfigs, each with its own {member}; leave {member} out."
            )
    return [{**given, **each} for each in choices]


def _checkpoints(config: Mapping[str, Any], name: str) -> Shape:
    """Return a location for each trial: it would otherwise resume from the checkpoints of another."""
    return {**config, "S3Uri": f"{config['S3Uri'].rstrip('/')}/{name}"}


def _pruning_members(rules: Iterable[str], output_path: str) -> Shape:
    """Return the members with which rules of the debugger stop a trial."""
    configurations = [
        {
            "RuleConfigurationName": rule,
            "RuleEvaluatorImage": f"{BUILT_IN_IMAGE}:latest",
            "RuleParameters": {"rule_to_invoke": rule, "action_json": _STOP},
        }
        for rule in rules
    ]
    if not configurations:
        return {}
    return {"DebugHookConfig": {"S3OutputPath": output_path}, "DebugRuleConfigurations": configurations}
