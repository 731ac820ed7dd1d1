"""What a training job reads: channels on S3 or on a file system."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest

DEFAULT_CHANNEL = "training"

# The words of the API. One that is misspelt is found here, before anything is brought to S3 for it.
DISTRIBUTIONS = ("FullyReplicated", "ShardedByS3Key")
MODES = ("File", "FastFile", "Pipe")
_COMPRESSIONS = ("None", "Gzip")
_WRAPPINGS = ("None", "RecordIO")
_DATA_TYPES = ("S3Prefix", "ManifestFile", "AugmentedManifestFile")
_FILE_SYSTEM_TYPES = ("EFS", "FSxLustre")
_ACCESS_MODES = ("ro", "rw")

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
        require_word("distribution", distribution, DISTRIBUTIONS)
        require_word("compression", compression, _COMPRESSIONS)
        require_word("record_wrapping", record_wrapping, _WRAPPINGS)
        require_word("s3_data_type", s3_data_type, _DATA_TYPES)
        require_word("input_mode", input_mode, MODES)
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
        require_word("file_system_type", file_system_type, _FILE_SYSTEM_TYPES)
        require_word("file_system_access_mode", file_system_access_mode, _ACCESS_MODES)
        source = {
            "FileSystemId": file_system_id,
            "FileSystemType": file_system_type,
            "DirectoryPath": directory_path,
            "FileSystemAccessMode": file_system_access_mode,
        }
        self.config: Shape = {"DataSource": {"FileSystemDataSource": source}} | _given(ContentType=content_type)


class FileSystemRecordSet:
    """Records in a folder of a file system, which name the channel that they become."""

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
        """The channel, as `fit` takes it."""
        return {self.channel: self.file_system_input}


Input = str | TrainingInput | FileSystemInput
Inputs = Input | Mapping[str, Input] | FileSystemRecordSet | Sequence[FileSystemRecordSet]


def channels(inputs: Inputs | None) -> list[Shape]:
    """The channels of a training request; one input alone is the channel "training"."""
    return [] if inputs is None else [channel(name, given) for name, given in _named(inputs)]


def channel(name: str, given: Input) -> Shape:
    """One channel; a plain location is an S3 prefix that every instance gets whole."""
    if isinstance(given, TrainingInput | FileSystemInput):
        return {**given.config, "ChannelName": name}
    if not isinstance(given, str):
        raise InvalidRequest(
            f'Channel "{name}" is a {type(given).__name__}; give an S3 location, a TrainingInput or a FileSystemInput.'
        )
    return {**TrainingInput(given).config, "ChannelName": name}


def require_word(name: str, value: str | None, allowed: Sequence[str]) -> None:
    """InvalidRequest when an argument is none of the words that it can be."""
    if value is not None and value not in allowed:
        raise InvalidRequest(f'{name} is "{value}"; it can be {", ".join(allowed[:-1])} or {allowed[-1]}.')


def _named(inputs: Inputs) -> list[tuple[str, Input]]:
    if isinstance(inputs, Mapping):
        return list(inputs.items())
    if isinstance(inputs, str | TrainingInput | FileSystemInput):
        return [(DEFAULT_CHANNEL, inputs)]
    sets = [inputs] if isinstance(inputs, FileSystemRecordSet) else inputs
    if not isinstance(sets, Sequence) or not all(isinstance(each, FileSystemRecordSet) for each in sets):
        raise InvalidRequest(
            f"The inputs are a {type(inputs).__name__}; give an S3 location, a TrainingInput or a FileSystemInput, "
            "several of these by the names of their channels, or a list of FileSystemRecordSets."
        )
    names = [each.channel for each in sets]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f'Two record sets are for the channel "{name}"; give each a channel of its own.')
    return [(each.channel, each.file_system_input) for each in sets]


def _location(uri: str) -> str:
    if not uri.startswith("s3://"):
        raise InvalidRequest(f'"{uri}" is not on S3; Session.upload_input uploads it and returns its location.')
    return uri


def _given(**members: Any) -> Shape:
    return {name: value for name, value in members.items() if value is not None}


def _listed(names: Sequence[str] | None) -> list[str] | None:
    return list(names) if names else None
