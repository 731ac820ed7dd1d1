"""Which objects each instance of a job gets."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.engines.file_systems import FileSystems
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs import ChannelPlan
from trainyard.foundation.locations import BucketRef, Location, parse_s3_uri
from trainyard.link.contract import ChannelSpec
from trainyard.objects.contract import ObjectStore

MAX_MANIFEST_BYTES = 64 * 1024 * 1024

_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Contents:
    """The objects of a channel, in order, whose keys begin with the key of `prefix`; or a folder of this machine."""

    prefix: Location
    keys: Sequence[str]
    folder: str = ""


def contents_of(objects: ObjectStore, channel: ChannelPlan, *, account: str, file_systems: FileSystems) -> Contents:
    """All that a channel holds now; InvalidRequest when that is nothing. An augmented manifest stands for itself."""
    if channel.file_system:
        nowhere = Location(BucketRef(account, ""), "")
        return Contents(nowhere, (), str(file_systems.folder(channel.file_system)))
    where = parse_s3_uri(channel.uri, account)
    if channel.attributes:
        return Contents(where, (where.key,))
    try:
        contents = _manifest(objects, where) if channel.is_manifest else Contents(where, list(_keys(objects, where)))
    except NotFound as error:
        raise InvalidRequest(f'The channel "{channel.name}" cannot be read: {error.message}') from error
    if not contents.keys:
        raise InvalidRequest(f'There are no objects under "{channel.uri}", which the channel "{channel.name}" names.')
    if channel.shuffle_seed is None:
        return contents
    keys = list(contents.keys)
    random.Random(channel.shuffle_seed).shuffle(keys)
    return Contents(contents.prefix, keys)


def channel_spec(channel: ChannelPlan, contents: Contents, *, number: int, count: int) -> ChannelSpec:
    """The part of instance `number` of `count`, counted from 0. Each gets the whole of an augmented manifest."""
    is_shared_out = channel.is_sharded and not channel.attributes
    return ChannelSpec(
        name=channel.name,
        mode=channel.mode,
        bucket=contents.prefix.bucket.name,
        prefix=contents.prefix.key,
        keys=contents.keys[number::count] if is_shared_out else contents.keys,
        content_type=channel.content_type,
        record_wrapper=channel.record_wrapper,
        distribution="ShardedByS3Key" if channel.is_sharded else "FullyReplicated",
        compression=channel.compression,
        shuffle_seed=channel.shuffle_seed,
        attributes=channel.attributes,
        folder=contents.folder,
        directory=channel.directory,
        is_writable=channel.is_writable,
    )


def _keys(objects: ObjectStore, where: Location) -> Iterator[str]:
    after: str | None = ""
    while after is not None:
        page = objects.list_objects(where.bucket, prefix=where.key, after=after, limit=_BATCH)
        yield from (found.key for found in page.objects)
        after = page.next_after


def _manifest(objects: ObjectStore, where: Location) -> Contents:
    """A manifest is a JSON list: a prefix, then the rest of each key."""
    with objects.open(where) as reader:
        if reader.info.size > MAX_MANIFEST_BYTES:
            raise InvalidRequest(f"The manifest {where} is larger than {MAX_MANIFEST_BYTES} bytes.")
        data = reader.read(0, reader.info.size)
    try:
        return _manifest_contents(json.loads(data), where.bucket)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            f'{where} is not a manifest; it must be a JSON list of a {{"prefix": "s3://…"}} and the rests of the keys.'
        ) from error


def _manifest_contents(entries: Any, bucket: BucketRef) -> Contents:
    match entries:
        case [{"prefix": str(prefix)}, *rests] if all(isinstance(rest, str) for rest in rests):
            where = parse_s3_uri(prefix, bucket.account)
            return Contents(where, [where.key + rest for rest in rests])
    raise ValueError("another shape")
