"""Features of training jobs that the yard does not have: refused, or accepted with a note.

A request with a member of `REFUSED` fails, and the error names it. Members of `NOT_ENFORCED` are stored, returned as
sent, and noted on the job, because clients send them by default or because they make no sense on one's own machine.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Shape

Predicate = Callable[[Any], bool]


def require_served(shape: Shape, *, action: str = "create") -> None:
    """Raise InvalidRequest that names every unsupported feature of the request."""
    unserved = list(dict.fromkeys([*_unserved_members(shape), *_unserved_modes(shape), *_unserved_launchers(shape)]))
    if unserved:
        pronoun = "it" if len(unserved) == 1 else "them"
        raise InvalidRequest(
            f"Trainyard does not serve {', '.join(unserved)} yet; {action} the training job without {pronoun}."
        )


def notes_on(shape: Shape) -> tuple[str, ...]:
    """Return notes for the user on what the request asks for and the yard does not enforce."""
    return tuple(note for path, is_requested, note in NOT_ENFORCED if any(map(is_requested, _values(shape, path))))


def _is_given(_value: Any) -> bool:
    return True


def _is_none_of(*words: str) -> Predicate:
    return lambda value: value not in words


def _is_real_rule(rules: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there is a rule besides the report that the SDK adds to every job."""
    return any(rule.get("RuleParameters", {}).get("rule_to_invoke") != "ProfilerReport" for rule in rules)


def _is_profiled(config: Mapping[str, Any]) -> bool:
    return not config.get("DisableProfiler")


_DATA_TYPES = ("S3Prefix", "ManifestFile", "AugmentedManifestFile")

REFUSED: Sequence[tuple[str, Predicate]] = (
    ("AlgorithmSpecification.AlgorithmName", _is_given),
    ("InputDataConfig.DataSource.DatasetSource", _is_given),
    ("InputDataConfig.DataSource.S3DataSource.S3DataType", _is_none_of(*_DATA_TYPES)),
    ("InputDataConfig.DataSource.S3DataSource.HubAccessConfig", _is_given),
    ("OutputDataConfig.CompressionType", _is_none_of("GZIP")),
    ("ResourceConfig.TrainingPlanArn", _is_given),
    ("ResourceConfig.InstancePlacementConfig", _is_given),
    ("ResourceConfig.InstancePreferences", _is_given),
    ("ProfilerRuleConfigurations", _is_real_rule),
    ("RemoteDebugConfig.EnableRemoteDebug", bool),
    ("InfraCheckConfig.EnableInfraCheck", bool),
    ("SessionChainingConfig.EnableSessionTagChaining", bool),
    ("ServerlessJobConfig", _is_given),
    ("MlflowConfig", _is_given),
    ("ModelPackageConfig", _is_given),
)

NOT_ENFORCED: Sequence[tuple[str, Predicate, str]] = (
    ("VpcConfig", _is_given, "VpcConfig is not enforced: the job uses the network of its machine."),
    ("OutputDataConfig.KmsKeyId", bool, "OutputDataConfig.KmsKeyId is not used: artifacts are not encrypted."),
    ("ResourceConfig.VolumeKmsKeyId", bool, "VolumeKmsKeyId is not used: the job uses the disk of its machine."),
    ("ResourceConfig.VolumeSizeInGB", bool, "VolumeSizeInGB is not enforced: the job uses the disk of its machine."),
    ("ProfilerConfig", _is_profiled, "ProfilerConfig has no effect: jobs are not profiled yet."),
    ("ProfilerRuleConfigurations", bool, "The profiler report is not created yet."),
    ("ExperimentConfig", _is_given, "ExperimentConfig has no effect: experiments are not tracked yet."),
    ("AlgorithmSpecification.TrainingImageConfig", _is_given, "TrainingImageConfig is not used: no image is pulled."),
)

# Hyperparameters with which the SDK asks for a launcher.
_LAUNCHERS = ("sagemaker_pytorch_xla_multi_worker_enabled",)


def _unserved_members(shape: Shape) -> Iterator[str]:
    for path, is_requested in REFUSED:
        for value in _values(shape, path):
            if is_requested(value):
                yield f"{path} {value}" if isinstance(value, str) and is_requested is not _is_given else path


def _unserved_modes(shape: Shape) -> Iterator[str]:
    default = shape.get("AlgorithmSpecification", {}).get("TrainingInputMode", "File")
    modes = {channel.get("InputMode", default) for channel in shape.get("InputDataConfig", ())}
    yield from (f"the input mode {mode}" for mode in sorted(modes - {"File", "FastFile", "Pipe"}))


def _unserved_launchers(shape: Shape) -> Iterator[str]:
    hyperparameters = shape.get("HyperParameters", {})
    yield from (f"the hyperparameter {name}" for name in _LAUNCHERS if _is_true(hyperparameters.get(name, "false")))


def _is_true(text: str) -> bool:
    try:
        return bool(json.loads(text.lower()))
    except ValueError:
        return bool(text)


def _values(shape: Any, path: str) -> Iterator[Any]:
    """Yield the values at a dotted path; in a list, those of every member."""
    name, _, rest = path.partition(".")
    for each in shape if isinstance(shape, list) else [shape]:
        if name not in each:
            continue
        if rest:
            yield from _values(each[name], rest)
        else:
            yield each[name]
