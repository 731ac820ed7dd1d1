"""Files that SageMaker's platform leaves on an instance, in the form recorded there. Some scripts read them.

Its words are those of the platform's own services: S3_PREFIX for S3Prefix. What a list of metric definitions with
members looks like, and what upstreamoutputdataconfig.json is for, was never recorded: there they were empty.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainyard.foundation.locations import parse_s3_uri
from trainyard.instance.sandbox.contract import ML
from trainyard.link.contract import ChannelSpec, InstanceSpec

_CHECKPOINTS = f"{ML}/checkpoints"
_CHECKPOINT_CHANNEL = "checkpoints"

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Members whose values are words of the platform.
_WORDS = frozenset({"S3DataType", "S3DataDistributionType", "CompressionType", "RecordWrapperType"})
_DEFAULTS = {"CompressionType": "NONE", "RecordWrapperType": "NONE"}


def platform_files(spec: InstanceSpec) -> Mapping[str, Any]:
    """The files in /opt/ml/input/config by name; none for a spec that does not have its request."""
    if not spec.request:
        return {}
    return {
        "init-config.json": _init_config(spec),
        "trainingjobconfig.json": _training_job_config(spec),
        "metric-definition-regex.json": [{"name": each.name, "regex": each.regex} for each in spec.metrics],
        "upstreamoutputdataconfig.json": [],
    }


def has_checkpoint_folder(spec: InstanceSpec) -> bool:
    """Whether there is /opt/ml/checkpoints: as on SageMaker, not if the checkpoints of the job are elsewhere."""
    return spec.checkpoint is None or spec.checkpoint.path == _CHECKPOINTS


def channel_manifests(spec: InstanceSpec) -> Iterator[tuple[str, bytes]]:
    """Yield the manifests in /opt/ml/input/data: the prefix of a File channel, then the objects of this instance."""
    names = {channel.name for channel in spec.channels}
    for channel in spec.channels:
        name = f"{channel.name}-manifest"
        if channel.mode == "File" and not channel.folder and name not in names:
            yield name, _manifest(channel)


def checkpoint_manifest(spec: InstanceSpec, keys: Iterable[str]) -> Mapping[str, bytes]:
    """Return the manifest of the restored checkpoints by its name, which are a channel of the platform.

    There is none without checkpoints, or if a channel of the job has the name.
    """
    names = {channel.name for channel in spec.channels}
    if spec.checkpoint is None or names & {_CHECKPOINT_CHANNEL, f"{_CHECKPOINT_CHANNEL}-manifest"}:
        return {}
    where = parse_s3_uri(spec.checkpoint.uri, spec.account)
    return {f"{_CHECKPOINT_CHANNEL}-manifest": _manifest_of(where.bucket.name, where.key, keys)}


def _manifest(channel: ChannelSpec) -> bytes:
    return _manifest_of(channel.bucket, channel.prefix, channel.keys)


def _manifest_of(bucket: str, prefix: str, keys: Iterable[str]) -> bytes:
    objects = (f"s3://{bucket}/{key}\n" for key in keys)
    return f"{prefix}\n{''.join(objects)}".encode()


def _training_job_config(spec: InstanceSpec) -> Mapping[str, Any]:
    request = spec.request
    channels = [_platform_words(_DEFAULTS | channel) for channel in request.get("InputDataConfig", ())]
    algorithm = {"MetricDefinitions": [], **request["AlgorithmSpecification"]}
    switches = ("EnableInterContainerTrafficEncryption", "EnableNetworkIsolation", "EnableManagedSpotTraining")
    return {
        **{name: request.get(name, False) for name in switches},
        **request,
        "InputDataConfig": channels,
        "OutputDataConfig": {"KmsKeyId": "", **request["OutputDataConfig"]},
        "AlgorithmSpecification": algorithm,
        "BaseTags": request.get("Tags", []),
        "TrainingJobArn": spec.job_arn,
    }


def _platform_words(value: Any, member: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _platform_words(each, name) for name, each in value.items()}
    return _platform_word(value) if member in _WORDS else value


def _platform_word(word: str) -> str:
    """Return FULLY_REPLICATED for FullyReplicated."""
    return _HUMP.sub("_", word).upper()


def _init_config(spec: InstanceSpec) -> Mapping[str, Any]:
    request = spec.request
    mode = request["AlgorithmSpecification"].get("TrainingInputMode", "File")
    return {
        "inputMode": _platform_word(mode),
        "channels": {each["ChannelName"]: _init_channel(each, mode) for each in request.get("InputDataConfig", ())},
        "checkpointChannel": _checkpoint_channel(request),
        "hostConfig": {"clusterSize": len(spec.hosts), "hostNumber": list(spec.hosts).index(spec.instance) + 1},
        "enableAdditionalPlatformLoggingForCustomer": False,
        "jobRunInfo": {"jobRunNumber": spec.attempt},
    }


def _init_channel(channel: Mapping[str, Any], mode: str) -> Mapping[str, Any]:
    source = channel["DataSource"]
    s3, files = source.get("S3DataSource"), source.get("FileSystemDataSource")
    distribution = (s3 or {}).get("S3DataDistributionType", "FullyReplicated")
    shuffle = channel.get("ShuffleConfig")
    return {
        "s3DataSource": s3
        and {
            "s3DataType": _platform_word(s3["S3DataType"]),
            "s3Uri": s3["S3Uri"],
            "s3DataDistributionType": _platform_word(distribution),
            "attributeNames": s3.get("AttributeNames"),
        },
        "fileSystemDataSource": files
        and {
            "fileSystemId": files["FileSystemId"],
            "fileSystemType": files["FileSystemType"],
            "fileSystemAccessMode": files["FileSystemAccessMode"],
            "directoryPath": files["DirectoryPath"],
        },
        "compressionType": _platform_word(channel.get("CompressionType", "None")),
        "recordWrapper": _platform_word(channel.get("RecordWrapperType", "None")),
        "shuffleConfig": shuffle and {"seed": shuffle["Seed"]},
        "inputMode": _platform_word(channel.get("InputMode", mode)),
        "sharded": distribution == "ShardedByS3Key",
    }


def _checkpoint_channel(request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The channel that brings the checkpoints. The platform mounts its folder at the local path of the request."""
    config = request.get("CheckpointConfig")
    if config is None:
        return None
    source = {
        "s3DataType": "S3_PREFIX",
        "s3Uri": config["S3Uri"],
        "s3DataDistributionType": None,
        "attributeNames": None,
    }
    return {
        "name": _CHECKPOINT_CHANNEL,
        "channel": {
            "s3DataSource": source,
            "fileSystemDataSource": None,
            "compressionType": None,
            "recordWrapper": None,
            "shuffleConfig": None,
            "inputMode": "FILE",
            "sharded": False,
        },
        "outputPath": _CHECKPOINTS,
        "allowEmpty": True,
    }
