"""What a training job reads: channels on S3 or on a file system."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest

DEFAULT_CHANNEL = "training"

Shape = dict[str, Any]


class ShuffleConfig:
    """Lets the yard hand out the objects of a channel in another order each epoch."""

    def __init__(self, seed: int) -> None:
        self.seed = seed


class TrainingInput:
    """Objects on S3 that become one channel. `config` is how the API words it, less the channel's name."""

    def __init__(
        self,
        s3_data: str,
        distribution: str | None = None,
        compression: str | None = None,
        content_type: str | None = None,
        record_wrapping: str | None = None,
        s3_data_type: str = "S3Prefix",
        instance_groups: Sequence[str] | None = None,
        input_mode: str | None = None,
        attribute_names: Sequence[str] | None = None,
        target_attribute_name: str | None = None,
        shuffle_config: ShuffleConfig | None = None,
    ) -> None:
        source: Shape = {"S3DataType": s3_data_type, "S3Uri": _location(s3_data)}
        source |= _given(
            S3DataDistributionType=distribution or (None if target_attribute_name else "FullyReplicated"),
            InstanceGroupNames=_listed(instance_groups),
            AttributeNames=_listed(attribute_names),
        )
        self.config: Shape = {"DataSource": {"S3DataSource": source}} | _given(
            CompressionType=compression,
            ContentType=content_type,
            RecordWrapperType=record_wrapping,
            InputMode=input_mode,
            TargetAttributeName=target_attribute_name,
            ShuffleConfig={"Seed": shuffle_config.seed} if shuffle_config else None,
        )


s3_input = TrainingInput  # its name in the first version of the sagemaker SDK


class FileSystemInput:
    """A folder of an EFS or FSx for Lustre file system that becomes one channel."""

    def __init__(
        self,
        file_system_id: str,
        file_system_type: str,
        directory_path: str,
        file_system_access_mode: str = "ro",
        content_type: str | None = None,
    ) -> None:
        _require("file_system_type", file_system_type, ("EFS", "FSxLustre"))
        _require("file_system_access_mode", file_system_access_mode, ("ro", "rw"))
        source = {
            "FileSystemId": file_system_id,
            "FileSystemType": file_system_type,
            "DirectoryPath": directory_path,
            "FileSystemAccessMode": file_system_access_mode,
        }
        self.config: Shape = {"DataSource": {"FileSystemDataSource": source}} | _given(ContentType=content_type)


Input = str | TrainingInput | FileSystemInput
Inputs = Input | Mapping[str, Input]


def channels(inputs: Inputs | None) -> list[Shape]:
    """The channels of a training request; one input alone is the channel "training"."""
    if inputs is None:
        return []
    named = inputs if isinstance(inputs, Mapping) else {DEFAULT_CHANNEL: inputs}
    return [channel(name, given) for name, given in named.items()]


def channel(name: str, given: Input) -> Shape:
    """One channel; a plain location is an S3 prefix that every instance gets whole."""
    if isinstance(given, TrainingInput | FileSystemInput):
        return {**given.config, "ChannelName": name}
    if not isinstance(given, str):
        raise InvalidRequest(
            f'Channel "{name}" is a {type(given).__name__}; give an S3 location, a TrainingInput or a FileSystemInput.'
        )
    return {**TrainingInput(given).config, "ChannelName": name}


def _location(uri: str) -> str:
    if not uri.startswith("s3://"):
        raise InvalidRequest(f'"{uri}" is not on S3; Session.upload_data brings it there and gives its location.')
    return uri


def _given(**members: Any) -> Shape:
    return {name: value for name, value in members.items() if value is not None}


def _listed(names: Sequence[str] | None) -> list[str] | None:
    return list(names) if names else None


def _require(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidRequest(f'{name} is "{value}"; it can be {" or ".join(allowed)}.')
