"""A trial as the request for a training job: what CreateTrainingJob would be sent for it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.debugging import BUILT_IN_IMAGE

OBJECTIVE = "_tuning_objective_metric"  # the hyperparameter by which AWS tells a program what is measured

_SAME = (
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
_RESOURCES, _OF_TUNING = "ResourceConfig", "HyperParameterTuningResourceConfig"
_STOP = json.dumps([{"name": "stoptraining"}])


def definitions_in(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What the request for a tuning job defines its training jobs by: one member, or a list of them."""
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
    """The request for the training job of that name, with these values for what is tuned."""
    shape: Shape = {member: definition[member] for member in _SAME if member in definition}
    tuned = {**definition.get("StaticHyperParameters", {}), **values, OBJECTIVE: metric}
    shape |= {"TrainingJobName": name, "HyperParameters": tuned, _RESOURCES: dict(resources)}
    if "CheckpointConfig" in definition:
        shape["CheckpointConfig"] = _checkpoints(definition["CheckpointConfig"], name)
    return shape | _judged(pruning_rules, definition["OutputDataConfig"]["S3OutputPath"])


def resource_choices(definition: Mapping[str, Any]) -> Sequence[Shape]:
    """The ResourceConfigs that a trial may have, the one to prefer first; InvalidRequest when that is not clear."""
    if (_RESOURCES in definition) == (_OF_TUNING in definition):
        raise InvalidRequest(f"A training job definition needs either a {_RESOURCES} or a {_OF_TUNING}.")
    if _RESOURCES in definition:
        return [dict(definition[_RESOURCES])]
    given = {member: value for member, value in definition[_OF_TUNING].items() if member != "AllocationStrategy"}
    choices = given.pop("InstanceConfigs", ())
    if not choices:
        return [given]
    for member in ("InstanceType", "InstanceCount", "VolumeSizeInGB"):
        if member in given:
            raise InvalidRequest(f"{_OF_TUNING} has InstanceConfigs, each with its own {member}; leave {member} out.")
    return [{**given, **each} for each in choices]


def _checkpoints(config: Mapping[str, Any], name: str) -> Shape:
    """A place of its own for each trial: it would otherwise go on from the checkpoints of another one."""
    return {**config, "S3Uri": f"{config['S3Uri'].rstrip('/')}/{name}"}


def _judged(rules: Iterable[str], output_path: str) -> Shape:
    """What has rules of the debugger stop a trial."""
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
