"""What a training job may ask for and this yard does not do: refused, or taken and said so.

A request that asks for something of `REFUSED` fails with its name. What is in `NOT_ENFORCED` is kept, told back as it
was sent, and noted on the job, because clients send it unasked or because a machine of one's own makes it moot.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Shape

Asked = Callable[[Any], bool]


def require_served(shape: Shape, *, doing: str = "create") -> None:
    """InvalidRequest with every feature that the request asks for and that is not served."""
    asked = list(dict.fromkeys([*_unserved_members(shape), *_unserved_modes(shape), *_unserved_launchers(shape)]))
    if asked:
        them = "it" if len(asked) == 1 else "them"
        raise InvalidRequest(
            f"Trainyard does not serve {', '.join(asked)} yet; {doing} the training job without {them}."
        )


def notes_on(shape: Shape) -> tuple[str, ...]:
    """Sentences for the user on what the request asks for and nobody enforces."""
    return tuple(note for path, is_asked, note in NOT_ENFORCED if any(map(is_asked, _values(shape, path))))


def _given(_value: Any) -> bool:
    return True


def _is_other_than(*words: str) -> Asked:
    return lambda value: value not in words


def _is_real_rule(rules: Sequence[Mapping[str, Any]]) -> bool:
    """The SDK adds the report on its own to every job; it is no rule that a user waits for."""
    return any(rule.get("RuleParameters", {}).get("rule_to_invoke") != "ProfilerReport" for rule in rules)


def _profiles(config: Mapping[str, Any]) -> bool:
    return not config.get("DisableProfiler")


_DATA_TYPES = ("S3Prefix", "ManifestFile", "AugmentedManifestFile")

REFUSED: Sequence[tuple[str, Asked]] = (
    ("AlgorithmSpecification.AlgorithmName", _given),
    ("InputDataConfig.DataSource.DatasetSource", _given),
    ("InputDataConfig.DataSource.S3DataSource.S3DataType", _is_other_than(*_DATA_TYPES)),
    ("InputDataConfig.DataSource.S3DataSource.HubAccessConfig", _given),
    ("OutputDataConfig.CompressionType", _is_other_than("GZIP")),
    ("ResourceConfig.TrainingPlanArn", _given),
    ("ResourceConfig.InstancePlacementConfig", _given),
    ("ResourceConfig.InstancePreferences", _given),
    ("ProfilerRuleConfigurations", _is_real_rule),
    ("RemoteDebugConfig.EnableRemoteDebug", bool),
    ("InfraCheckConfig.EnableInfraCheck", bool),
    ("SessionChainingConfig.EnableSessionTagChaining", bool),
    ("ServerlessJobConfig", _given),
    ("MlflowConfig", _given),
    ("ModelPackageConfig", _given),
)

NOT_ENFORCED: Sequence[tuple[str, Asked, str]] = (
    ("VpcConfig", _given, "VpcConfig is not enforced: the job uses the network of its machine."),
    ("OutputDataConfig.KmsKeyId", bool, "OutputDataConfig.KmsKeyId is not used: artifacts are stored as they are."),
    ("ResourceConfig.VolumeKmsKeyId", bool, "VolumeKmsKeyId is not used: the job's disk is that of its machine."),
    ("ResourceConfig.VolumeSizeInGB", bool, "VolumeSizeInGB is not enforced: the job's disk is that of its machine."),
    ("ProfilerConfig", _profiles, "ProfilerConfig has no effect: jobs are not profiled yet."),
    ("ProfilerRuleConfigurations", bool, "The profiler report is not made yet."),
    ("ExperimentConfig", _given, "ExperimentConfig has no effect: experiments are not tracked yet."),
    ("AlgorithmSpecification.TrainingImageConfig", _given, "TrainingImageConfig is not used: no image is pulled."),
)

# Hyperparameters by which the SDK asks for a launcher.
_LAUNCHERS = ("sagemaker_pytorch_xla_multi_worker_enabled",)


def _unserved_members(shape: Shape) -> Iterator[str]:
    for path, is_asked in REFUSED:
        for value in _values(shape, path):
            if is_asked(value):
                yield f"{path} {value}" if isinstance(value, str) and is_asked is not _given else path


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
    """What stands at a dotted path; in a list, at that path of every member."""
    name, _, rest = path.partition(".")
    for each in shape if isinstance(shape, list) else [shape]:
        if name not in each:
            continue
        if rest:
            yield from _values(each[name], rest)
        else:
            yield each[name]
