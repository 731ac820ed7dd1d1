"""Inputs of a training job: channels on S3, on this machine, or on a file system."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from trainyard.foundation.errors import InvalidRequest

__all__ = ["FileSystemInput", "FileSystemRecordSet", "ShuffleConfig", "TrainingInput", "s3_input"]

# As that of a package without files, so that Python asks the finder for names that only sagemaker has.
__path__: list[str] = []

DEFAULT_CHANNEL = "training"

# The values that the API accepts. Checking them here reports a misspelt one before anything is uploaded.
DISTRIBUTIONS = ("FullyReplicated", "ShardedByS3Key")
MODES = ("File", "FastFile", "Pipe")
_COMPRESSIONS = ("None", "Gzip")
_WRAPPINGS = ("None", "RecordIO")
_DATA_TYPES = ("S3Prefix", "ManifestFile", "AugmentedManifestFile")
_FILE_SYSTEM_TYPES = ("EFS", "FSxLustre")
_ACCESS_MODES = ("ro", "rw")

# Begins the location of a local file or folder, which is uploaded when the job is created.
_LOCAL = "file://"

Shape = dict[str, Any]


class ShuffleConfig:
    """Shuffles the objects of a channel, in a different order each epoch.

    Args:
        seed: Seed of the order.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed


class TrainingInput:
    """Objects on S3 that become one channel.

    `config` has the channel in the form of the SageMaker API, without its name.

    Args:
        s3_data: S3 location of the data: a prefix or, depending on `s3_data_type`, a manifest. A `file://` location is
            uploaded when the job is created.
        distribution: `FullyReplicated` gives every instance all objects, `ShardedByS3Key` gives each a part of them.
            Default: `FullyReplicated`.
        compression: `None` or `Gzip`. Only a Pipe channel can decompress.
        content_type: MIME type of the data.
        record_wrapping: `None` or `RecordIO`.
        s3_data_type: `S3Prefix`, `ManifestFile` or `AugmentedManifestFile`.
        instance_groups: Names of the instance groups that get the channel. Default: all.
        input_mode: `File`, `FastFile` or `Pipe`. Default: the input mode of the estimator.
        attribute_names: Attributes of an augmented manifest that the job gets.
        target_attribute_name: The attribute that holds the label.
        shuffle_config: How to shuffle the objects.

    Raises:
        InvalidRequest: `s3_data` is neither on S3 nor an existing local path, or an argument has a value that the API
            does not accept.
    """

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
        require_word("distribution", distribution, DISTRIBUTIONS)
        require_word("compression", compression, _COMPRESSIONS)
        require_word("record_wrapping", record_wrapping, _WRAPPINGS)
        require_word("s3_data_type", s3_data_type, _DATA_TYPES)
        require_word("input_mode", input_mode, MODES)
        source: Shape = {"S3DataType": s3_data_type, "S3Uri": _location(s3_data)}
        source |= _drop_none(
            S3DataDistributionType=distribution or (None if target_attribute_name else "FullyReplicated"),
            InstanceGroupNames=_list_or_none(instance_groups),
            AttributeNames=_list_or_none(attribute_names),
        )
        self.config: Shape = {"DataSource": {"S3DataSource": source}} | _drop_none(
            CompressionType=compression,
            ContentType=content_type,
            RecordWrapperType=record_wrapping,
            InputMode=input_mode,
            TargetAttributeName=target_attribute_name,
            ShuffleConfig={"Seed": shuffle_config.seed} if shuffle_config else None,
        )


# The name of TrainingInput in version 1 of the sagemaker SDK.
s3_input = TrainingInput


class FileSystemInput:
    """A folder of an EFS or FSx for Lustre file system that becomes one channel.

    Args:
        file_system_id: ID of the file system, such as `fs-0123456789abcdef0`.
        file_system_type: `EFS` or `FSxLustre`.
        directory_path: The folder in the file system.
        file_system_access_mode: `ro` to read only, `rw` to read and write.
        content_type: MIME type of the data.

    Raises:
        InvalidRequest: An argument has a value that the API does not accept.
    """

    def __init__(
        self,
        file_system_id: str,
        file_system_type: str,
        directory_path: str,
        file_system_access_mode: str = "ro",
        content_type: str | None = None,
    ) -> None:
        require_word("file_system_type", file_system_type, _FILE_SYSTEM_TYPES)
        require_word("file_system_access_mode", file_system_access_mode, _ACCESS_MODES)
        source = {
            "FileSystemId": file_system_id,
            "FileSystemType": file_system_type,
            "DirectoryPath": directory_path,
            "FileSystemAccessMode": file_system_access_mode,
        }
        self.config: Shape = {"DataSource": {"FileSystemDataSource": source}} | _drop_none(ContentType=content_type)


class FileSystemRecordSet:
    """Records in a folder of a file system, together with the name of their channel.

    Args:
        file_system_id: ID of the file system, such as `fs-0123456789abcdef0`.
        file_system_type: `EFS` or `FSxLustre`.
        directory_path: The folder in the file system.
        num_records: Number of records.
        feature_dim: Number of features of each record.
        file_system_access_mode: `ro` to read only, `rw` to read and write.
        channel: Name of the channel.
    """

    def __init__(
        self,
        file_system_id: str,
        file_system_type: str,
        directory_path: str,
        num_records: int,
        feature_dim: int,
        file_system_access_mode: str = "ro",
        channel: str = "train",
    ) -> None:
        self.file_system_input = FileSystemInput(
            file_system_id, file_system_type, directory_path, file_system_access_mode
        )
        self.num_records, self.feature_dim = num_records, feature_dim
        self.channel = channel

    def data_channel(self) -> dict[str, FileSystemInput]:
        """Return the channel in the form that `fit` takes."""
        return {self.channel: self.file_system_input}


Input = str | TrainingInput | FileSystemInput
Inputs = Input | Mapping[str, Input] | FileSystemRecordSet | Sequence[FileSystemRecordSet]


def channels(inputs: Inputs | None) -> list[Shape]:
    """Return the channels of a training request. A single input becomes the channel "training"."""
    return [] if inputs is None else [channel(name, given) for name, given in _inputs_by_channel(inputs)]


def channel(name: str, given: Input) -> Shape:
    """Return one channel. A plain location is an S3 prefix that every instance gets completely."""
    if isinstance(given, TrainingInput | FileSystemInput):
        return {**given.config, "ChannelName": name}
    if not isinstance(given, str):
        raise InvalidRequest(
            f'Channel "{name}" is a {type(given).__name__}; give an S3 location, a TrainingInput or a FileSystemInput.'
        )
    return {**TrainingInput(given).config, "ChannelName": name}


def require_word(name: str, value: str | None, allowed: Sequence[str]) -> None:
    """Raise InvalidRequest when an argument has none of the allowed values."""
    if value is not None and value not in allowed:
        raise InvalidRequest(f'{name} is "{value}"; it can be {", ".join(allowed[:-1])} or {allowed[-1]}.')


def _inputs_by_channel(inputs: Inputs) -> list[tuple[str, Input]]:
    if isinstance(inputs, Mapping):
        return list(inputs.items())
    if isinstance(inputs, str | TrainingInput | FileSystemInput):
        return [(DEFAULT_CHANNEL, inputs)]
    sets = [inputs] if isinstance(inputs, FileSystemRecordSet) else inputs
    if not isinstance(sets, Sequence) or not all(isinstance(each, FileSystemRecordSet) for each in sets):
        raise InvalidRequest(
            f"The inputs are a {type(inputs).__name__}; give an S3 location, a TrainingInput or a FileSystemInput, "
            "a mapping from channel names to these, or a list of FileSystemRecordSets."
        )
    names = [each.channel for each in sets]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f'Two record sets have the channel "{name}"; give each its own channel.')
    return [(each.channel, each.file_system_input) for each in sets]


def upload_local(shapes: Sequence[Shape], upload: Callable[[str], str]) -> list[Shape]:
    """Return channels with local files and folders replaced by what `upload` returns for their paths."""
    return [_upload_channel(shape, upload) for shape in shapes]


def _upload_channel(shape: Shape, upload: Callable[[str], str]) -> Shape:
    source = shape["DataSource"].get("S3DataSource", {})
    uri = source.get("S3Uri", "")
    if not uri.startswith(_LOCAL):
        return shape
    return {**shape, "DataSource": {"S3DataSource": {**source, "S3Uri": upload(_local_path(uri))}}}


def _local_path(uri: str) -> str:
    """Return the path of a local location: that of file:///data is /data, that of file://data is relative."""
    return unquote(uri.removeprefix(_LOCAL))


def _location(uri: str) -> str:
    if uri.startswith(_LOCAL):
        if not Path(_local_path(uri)).exists():
            raise InvalidRequest(f'"{uri}" is a local location, and there is no file or folder "{_local_path(uri)}".')
        return uri
    if not uri.startswith("s3://"):
        raise InvalidRequest(f'"{uri}" is not on S3; write {_LOCAL}{uri} to upload a local file or folder.')
    return uri


def _drop_none(**members: Any) -> Shape:
    return {name: value for name, value in members.items() if value is not None}


def _list_or_none(names: Sequence[str] | None) -> list[str] | None:
    return list(names) if names else None
