"""Where the data of a training job lies: read from the request, and looked up before the job is accepted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainyard.engines.file_systems import FileSystems
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs import ChannelPlan
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.objects.contract import ObjectStore
from trainyard.server.control.channels import contents_of
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.paths import require_path


def channels_of(shape: Shape) -> tuple[ChannelPlan, ...]:
    """The channels in the order of the request.

    InvalidRequest when a name cannot be a folder or comes twice, or a channel asks for what does not go together.
    """
    mode = shape["AlgorithmSpecification"].get("TrainingInputMode", "File")
    channels = tuple(_channel(each, mode) for each in shape.get("InputDataConfig", ()))
    names = [channel.name for channel in channels]
    for name in names:
        if name in (".", ".."):
            raise InvalidRequest(f'"{name}" cannot be the name of a channel.')
        if names.count(name) > 1:
            raise InvalidRequest(f'The channel name "{name}" is used more than once; give each channel its own.')
    return channels


def require_bucket(objects: ObjectStore, uri: str, *, account: str, member: str) -> None:
    """InvalidRequest, which names the member, when the bucket of an S3 location is not there."""
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
        raise InvalidRequest(f'There is no object at "{uri}", which {member} names.') from error


def require_channels(
    objects: ObjectStore, channels: Sequence[ChannelPlan], *, account: str, file_systems: FileSystems
) -> None:
    """InvalidRequest for the first channel that would be empty."""
    for channel in channels:
        member = f'the channel "{channel.name}"'
        if channel.file_system:
            _require_file_system(objects, channel, account=account, file_systems=file_systems)
            continue
        if channel.is_manifest or channel.attributes:
            require_object(objects, channel.uri, account=account, member=member)
            if channel.is_manifest:  # which is read for its shape; whether its objects are there is found with the data
                contents_of(objects, channel, account=account, file_systems=file_systems)
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
            f'The file system "{channel.file_system}" stands for {uri}, which jobs can only read; give the channel '
            f'"{channel.name}" the FileSystemAccessMode ro.'
        )
    _require_prefix(objects, uri, account=account, member=f'the file system "{channel.file_system}"')


def _require_prefix(objects: ObjectStore, uri: str, *, account: str, member: str) -> None:
    require_bucket(objects, uri, account=account, member=member)
    where = _location(uri, account, member)
    if not objects.list_objects(where.bucket, prefix=where.key, limit=1).objects:
        raise InvalidRequest(
            f'There are no objects under "{uri}", which {member} names; upload the data first, or correct the prefix.'
        )


def _location(uri: str, account: str, member: str) -> Location:
    try:
        return parse_s3_uri(uri, account)
    except InvalidRequest as error:
        raise InvalidRequest(f"{error.message[:-1]} ({member}).") from error


def _channel(shape: dict[str, Any], default_mode: str) -> ChannelPlan:
    name, source = shape["ChannelName"], shape["DataSource"]
    if ("S3DataSource" in source) == ("FileSystemDataSource" in source):
        raise InvalidRequest(f'The channel "{name}" needs an S3DataSource or a FileSystemDataSource, and not both.')
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
        channel = _on_s3(channel, source["S3DataSource"])
    else:
        channel = _on_file_system(channel, source["FileSystemDataSource"])
    if channel.mode != "Pipe":
        _require_no_pipe(channel)
    return channel


def _on_s3(channel: ChannelPlan, source: dict[str, Any]) -> ChannelPlan:
    is_augmented = source["S3DataType"] == "AugmentedManifestFile"
    attributes = tuple(source.get("AttributeNames", ()))
    if attributes and not is_augmented:
        raise InvalidRequest(
            f'The channel "{channel.name}" has AttributeNames, which are only for the S3DataType AugmentedManifestFile.'
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


def _on_file_system(channel: ChannelPlan, source: dict[str, Any]) -> ChannelPlan:
    if channel.mode != "File":
        raise InvalidRequest(
            f'The channel "{channel.name}" is a file system, which has the input mode File and not {channel.mode}.'
        )
    require_path(source["DirectoryPath"], f'The DirectoryPath of the channel "{channel.name}"')
    return replace(
        channel,
        file_system=source["FileSystemId"],
        directory=source["DirectoryPath"].strip("/"),
        is_writable=source["FileSystemAccessMode"] == "rw",
    )


def _require_no_pipe(channel: ChannelPlan) -> None:
    asked = {
        "CompressionType": channel.compression != "None",
        "RecordWrapperType": channel.record_wrapper != "None",
        "the S3DataType AugmentedManifestFile": bool(channel.attributes),
    }
    for member, is_asked in asked.items():
        if is_asked:
            raise InvalidRequest(
                f'The channel "{channel.name}" has the input mode {channel.mode}; {member} is only for Pipe.'
            )
