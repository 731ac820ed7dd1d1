"""The input channels of a training job: parsed from the request, and looked up before the job is accepted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainyard.engines.file_systems import FileSystems
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs.channels import ChannelPlan
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.objects.contract import ObjectStore
from trainyard.server.channel_contents import load_contents
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.training.local_paths import require_path


def channels_of(shape: Shape) -> tuple[ChannelPlan, ...]:
    """Return the channels in the order of the request.

    Raises InvalidRequest if a name is not a valid folder or is used twice, or if the settings of a channel conflict.
    """
    mode = shape["AlgorithmSpecification"].get("TrainingInputMode", "File")
    channels = tuple(_channel(each, mode) for each in shape.get("InputDataConfig", ()))
    names = [channel.name for channel in channels]
    for name in names:
        if name in (".", ".."):
            raise InvalidRequest(f'"{name}" is not a valid channel name.')
        if names.count(name) > 1:
            raise InvalidRequest(f'The channel name "{name}" is used more than once; give each channel its own name.')
    return channels


def require_bucket(objects: ObjectStore, uri: str, *, account: str, member: str) -> None:
    """Raise InvalidRequest, naming the member, if the bucket of an S3 location does not exist."""
    where = _location(uri, account, member)
    try:
        objects.bucket(where.bucket)
    except NotFound as error:
        raise InvalidRequest(
            f'The bucket "{where.bucket.name}" of {member} does not exist; create it first, or name another.'
        ) from error


def require_object(objects: ObjectStore, uri: str, *, account: str, member: str) -> None:
    where = _location(uri, account, member)
    try:
        objects.info(where)
    except NotFound as error:
        raise InvalidRequest(f'There is no object at "{uri}" ({member}).') from error


def require_channels(
    objects: ObjectStore, channels: Sequence[ChannelPlan], *, account: str, file_systems: FileSystems
) -> None:
    """Raise InvalidRequest for the first channel that would be empty."""
    for channel in channels:
        member = f'the channel "{channel.name}"'
        if channel.file_system:
            _require_file_system(objects, channel, account=account, file_systems=file_systems)
            continue
        if channel.is_manifest or channel.attributes:
            require_object(objects, channel.uri, account=account, member=member)
            # Checks the form of the manifest. Whether its objects exist is checked when the data is read.
            if channel.is_manifest:
                load_contents(objects, channel, account=account, file_systems=file_systems)
            continue
        _require_prefix(objects, channel.uri, account=account, member=member)


def _require_file_system(
    objects: ObjectStore, channel: ChannelPlan, *, account: str, file_systems: FileSystems
) -> None:
    uri = file_systems.prefix(channel.file_system, channel.directory)
    if uri is None:
        file_systems.require(channel.file_system, channel.directory)
        return
    if channel.is_writable:
        raise InvalidRequest(
            f'The file system "{channel.file_system}" is mapped to {uri}, which is read-only; set the '
            f'FileSystemAccessMode of the channel "{channel.name}" to ro.'
        )
    _require_prefix(objects, uri, account=account, member=f'the file system "{channel.file_system}"')


def _require_prefix(objects: ObjectStore, uri: str, *, account: str, member: str) -> None:
    require_bucket(objects, uri, account=account, member=member)
    where = _location(uri, account, member)
    if not objects.list_objects(where.bucket, prefix=where.key, limit=1).objects:
        raise InvalidRequest(
            f'There are no objects under "{uri}" ({member}); upload the data first, or correct the prefix.'
        )


def _location(uri: str, account: str, member: str) -> Location:
    try:
        return parse_s3_uri(uri, account)
    except InvalidRequest as error:
        raise InvalidRequest(f"{error.message[:-1]} ({member}).") from error


def _channel(shape: dict[str, Any], default_mode: str) -> ChannelPlan:
    name, source = shape["ChannelName"], shape["DataSource"]
    if ("S3DataSource" in source) == ("FileSystemDataSource" in source):
        raise InvalidRequest(f'The channel "{name}" needs either an S3DataSource or a FileSystemDataSource.')
    channel = ChannelPlan(
        name=name,
        uri="",
        shuffle_seed=shape.get("ShuffleConfig", {}).get("Seed"),
        content_type=shape.get("ContentType"),
        mode=shape.get("InputMode", default_mode),
        record_wrapper=shape.get("RecordWrapperType", "None"),
        compression=shape.get("CompressionType", "None"),
    )
    if "S3DataSource" in source:
        channel = _with_s3_source(channel, source["S3DataSource"])
    else:
        channel = _with_file_system_source(channel, source["FileSystemDataSource"])
    if channel.mode != "Pipe":
        _refuse_pipe_options(channel)
    return channel


def _with_s3_source(channel: ChannelPlan, source: dict[str, Any]) -> ChannelPlan:
    is_augmented = source["S3DataType"] == "AugmentedManifestFile"
    attributes = tuple(source.get("AttributeNames", ()))
    if attributes and not is_augmented:
        raise InvalidRequest(
            f'The channel "{channel.name}" has AttributeNames, which need the S3DataType AugmentedManifestFile.'
        )
    if is_augmented and not attributes:
        raise InvalidRequest(f'The channel "{channel.name}" is an AugmentedManifestFile and needs AttributeNames.')
    return replace(
        channel,
        uri=source["S3Uri"],
        is_manifest=source["S3DataType"] == "ManifestFile",
        is_sharded=source.get("S3DataDistributionType") == "ShardedByS3Key",
        groups=tuple(source.get("InstanceGroupNames", ())),
        attributes=attributes,
    )


def _with_file_system_source(channel: ChannelPlan, source: dict[str, Any]) -> ChannelPlan:
    if channel.mode != "File":
        raise InvalidRequest(
            f'The channel "{channel.name}" is a file system and needs the input mode File, not {channel.mode}.'
        )
    require_path(source["DirectoryPath"], f'The DirectoryPath of the channel "{channel.name}"')
    return replace(
        channel,
        file_system=source["FileSystemId"],
        directory=source["DirectoryPath"].strip("/"),
        is_writable=source["FileSystemAccessMode"] == "rw",
    )


def _refuse_pipe_options(channel: ChannelPlan) -> None:
    options = {
        "CompressionType": channel.compression != "None",
        "RecordWrapperType": channel.record_wrapper != "None",
        "the S3DataType AugmentedManifestFile": bool(channel.attributes),
    }
    for member, is_given in options.items():
        if is_given:
            raise InvalidRequest(
                f'The channel "{channel.name}" has the input mode {channel.mode}; {member} needs the input mode Pipe.'
            )
