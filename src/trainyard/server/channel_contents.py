"""The contents of input channels: which objects each instance of a job gets."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainyard.engines.file_systems import FileSystems
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs.channels import ChannelPlan
from trainyard.foundation.locations import BucketRef, Location, parse_s3_uri
from trainyard.link.contract import ChannelSpec
from trainyard.objects.contract import ObjectStore, ObjectSummary

MAX_MANIFEST_BYTES = 64 * 1024 * 1024

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ChannelContents:
    """The objects of a channel, in order, whose keys start with the key of `prefix`; or a folder of this machine.

    `etags` and `sizes` belong to the objects if they were listed; otherwise they are empty.
    """

    prefix: Location
    keys: Sequence[str]
    etags: Sequence[str] = ()
    sizes: Sequence[int] = ()
    folder: str = ""
    # The folder that caches data read from a file system for later jobs.
    cache: str = ""

    def shuffle(self, seed: int) -> "ChannelContents":
        """Return the contents in a random order that the seed determines."""
        order = list(range(len(self.keys)))
        random.Random(seed).shuffle(order)
        return replace(
            self,
            keys=[self.keys[position] for position in order],
            etags=[self.etags[position] for position in order] if self.etags else (),
            sizes=[self.sizes[position] for position in order] if self.sizes else (),
        )

    def part(self, number: int, count: int) -> "ChannelContents":
        """Return every `count`-th object, starting with object `number`."""
        return replace(
            self, keys=self.keys[number::count], etags=self.etags[number::count], sizes=self.sizes[number::count]
        )


def load_contents(
    objects: ObjectStore, channel: ChannelPlan, *, account: str, file_systems: FileSystems
) -> ChannelContents:
    """Return the contents of a channel. InvalidRequest when it is empty. An augmented manifest counts as one object."""
    uri = file_systems.prefix(channel.file_system, channel.directory) if channel.file_system else channel.uri
    if uri is None:
        nowhere = Location(BucketRef(account, ""), "")
        return ChannelContents(nowhere, (), folder=str(file_systems.folder(channel.file_system)))
    where = parse_s3_uri(uri, account)
    if channel.attributes:
        return ChannelContents(where, (where.key,))
    try:
        contents = _read_manifest(objects, where) if channel.is_manifest else _list_contents(objects, where)
    except NotFound as error:
        raise InvalidRequest(f'The channel "{channel.name}" cannot be read: {error.message}') from error
    if channel.file_system:
        contents = replace(contents, cache=str(file_systems.cache or ""))
    if not contents.keys:
        raise InvalidRequest(f'There are no objects under "{uri}", which is the location of channel "{channel.name}".')
    return contents if channel.shuffle_seed is None else contents.shuffle(channel.shuffle_seed)


def channel_spec(channel: ChannelPlan, contents: ChannelContents, *, number: int, count: int) -> ChannelSpec:
    """Return the part of a channel for instance `number` (from 0) of `count`.

    Each instance gets all of an augmented manifest, and all of a channel that is sharded again in each epoch.
    """
    whole = _whole_spec(channel, contents, number=number, count=count)
    if not channel.is_sharded or channel.attributes or whole.is_resharded_each_epoch:
        return whole
    own = contents.part(number, count)
    return replace(whole, keys=own.keys, etags=own.etags, sizes=own.sizes)


def _whole_spec(channel: ChannelPlan, contents: ChannelContents, *, number: int, count: int) -> ChannelSpec:
    return ChannelSpec(
        name=channel.name,
        mode=channel.mode,
        bucket=contents.prefix.bucket.name,
        prefix=contents.prefix.key,
        keys=contents.keys,
        etags=contents.etags,
        sizes=contents.sizes,
        content_type=channel.content_type,
        record_wrapper=channel.record_wrapper,
        distribution="ShardedByS3Key" if channel.is_sharded else "FullyReplicated",
        part=number,
        parts=count,
        compression=channel.compression,
        shuffle_seed=channel.shuffle_seed,
        attributes=channel.attributes,
        folder=contents.folder,
        directory=channel.directory if contents.folder else "",
        is_writable=channel.is_writable,
        cache=contents.cache,
        path=channel.path,
    )


def _list_contents(objects: ObjectStore, where: Location) -> ChannelContents:
    found = list(_objects_under(objects, where))
    return ChannelContents(
        where, [each.key for each in found], etags=[each.etag for each in found], sizes=[each.size for each in found]
    )


def _objects_under(objects: ObjectStore, where: Location) -> Iterator[ObjectSummary]:
    after: str | None = ""
    while after is not None:
        page = objects.list_objects(where.bucket, prefix=where.key, after=after, limit=_PAGE)
        yield from page.objects
        after = page.next_after


def _read_manifest(objects: ObjectStore, where: Location) -> ChannelContents:
    """Read a manifest: a JSON list of a prefix and the rest of each key."""
    with objects.open(where) as reader:
        if reader.info.size > MAX_MANIFEST_BYTES:
            raise InvalidRequest(f"The manifest {where} is larger than {MAX_MANIFEST_BYTES} bytes.")
        data = reader.read(0, reader.info.size)
    try:
        return _parse_manifest(json.loads(data), where.bucket)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            f'{where} is not a manifest; write a JSON list of a {{"prefix": "s3://…"}} and the rest of each key.'
        ) from error


def _parse_manifest(entries: Any, bucket: BucketRef) -> ChannelContents:
    match entries:
        case [{"prefix": str(prefix)}, *rests] if all(isinstance(rest, str) for rest in rests):
            where = parse_s3_uri(prefix, bucket.account)
            return ChannelContents(where, [where.key + rest for rest in rests])
    raise ValueError("not a manifest")
