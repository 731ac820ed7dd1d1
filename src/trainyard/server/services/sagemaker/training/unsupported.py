"""Features of training jobs that the yard does not have: refused, or accepted with a note.

A request with a member of `REFUSED` fails, and the error names it. One with a member of `AWS_ONLY` fails with the
reason why a yard cannot have it, and what to do instead. Members of `NOT_ENFORCED` are stored, returned as sent, and
noted on the job, because clients send them by default or because they make no sense on one's own machine.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainyard.foundation.engine_names import SPREAD_TAG, STRICT
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Shape

Predicate = Callable[[Any], bool]


def require_served(shape: Shape, *, action: str = "create") -> None:
    """Raise InvalidRequest that names every unsupported feature of the request."""
    reasons = [reason for path, is_requested, reason in AWS_ONLY if any(map(is_requested, _values(shape, path)))]
    unserved = list(dict.fromkeys([*_unserved_members(shape), *_unserved_modes(shape), *_unserved_launchers(shape)]))
    if unserved:
        pronoun = "it" if len(unserved) == 1 else "them"
        reasons.append(
            f"Trainyard does not serve {', '.join(unserved)} yet; {action} the training job without {pronoun}."
        )
    if reasons:
        raise InvalidRequest(" ".join(reasons))


def notes_on(shape: Shape) -> tuple[str, ...]:
    """Return notes for the user on what the request asks for and the yard does not enforce."""
    return tuple(note for path, is_requested, note in NOT_ENFORCED if any(map(is_requested, _values(shape, path))))


def _is_given(_value: Any) -> bool:
    return True


def _has_members(value: Mapping[str, Any]) -> bool:
    """Whether a structure asks for anything: one whose members are all false or empty is a default."""
    return any(value.values())


def _is_none_of(*words: str) -> Predicate:
    return lambda value: value not in words


def _is_chosen_size(gib: int) -> bool:
    """Whether somebody chose the size of a volume: the size is required, and SDKs send 30 GiB for all others."""
    return gib != _DEFAULT_VOLUME_GIB


_DEFAULT_VOLUME_GIB = 30
_DATA_TYPES = ("S3Prefix", "ManifestFile", "AugmentedManifestFile")

REFUSED: Sequence[tuple[str, Predicate]] = (
    ("InputDataConfig.DataSource.DatasetSource", _is_given),
    ("InputDataConfig.DataSource.S3DataSource.S3DataType", _is_none_of(*_DATA_TYPES)),
    ("InputDataConfig.DataSource.S3DataSource.HubAccessConfig", _is_given),
    ("ResourceConfig.InstancePreferences", _is_given),
    ("ServerlessJobConfig", _is_given),
    ("ModelPackageConfig", _is_given),
)

AWS_ONLY: Sequence[tuple[str, Predicate, str]] = (
    (
        "AlgorithmSpecification.AlgorithmName",
        _is_given,
        "AlgorithmSpecification.AlgorithmName names an algorithm of CreateAlgorithm or of AWS Marketplace, which a "
        "yard does not have; name an image as the TrainingImage instead.",
    ),
    (
        "ResourceConfig.TrainingPlanArn",
        bool,
        "ResourceConfig.TrainingPlanArn names capacity that is reserved in AWS; leave it out. Here jobs wait in the "
        "queue until their instances fit.",
    ),
    (
        "ResourceConfig.InstancePlacementConfig",
        _has_members,
        "ResourceConfig.InstancePlacementConfig places instances on UltraServers of AWS, which a yard does not have; "
        f"leave it out. The tag {SPREAD_TAG} with the value {STRICT} gives each instance a node of its own.",
    ),
    (
        "RemoteDebugConfig.EnableRemoteDebug",
        bool,
        "RemoteDebugConfig.EnableRemoteDebug opens shells through AWS Systems Manager, which a yard does not have; "
        "leave it out. `trainyard logs -f JOB` follows a running job, and shows the stacks of one that hangs; a "
        "flight recorder lets you run its last steps again in a debugger of your own.",
    ),
    (
        "MlflowConfig",
        _has_members,
        "MlflowConfig names an MLflow server that AWS manages; leave it out. Instead, start `mlflow server` where the "
        "job can reach it, and set MLFLOW_TRACKING_URI in the Environment of the job.",
    ),
)

NOT_ENFORCED: Sequence[tuple[str, Predicate, str]] = (
    ("VpcConfig", _is_given, "VpcConfig is not enforced: the job uses the network of its machine."),
    (
        "ResourceConfig.VolumeKmsKeyId",
        bool,
        "VolumeKmsKeyId is not used: the disk of the machine is encrypted, with a key of its own.",
    ),
    (
        "ResourceConfig.VolumeSizeInGB",
        _is_chosen_size,
        "VolumeSizeInGB is not enforced: the job uses the disk of its machine.",
    ),
    (
        "InfraCheckConfig.EnableInfraCheck",
        bool,
        "InfraCheckConfig has no effect: it checks instances of AWS. `trainyard doctor` checks this machine.",
    ),
    (
        "SessionChainingConfig.EnableSessionTagChaining",
        bool,
        "SessionChainingConfig has no effect: session tags serve policies, and no policy restricts anything here.",
    ),
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
