"""The content of what a job is given and leaves, as digests: its channels, its code and its results."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from trainyard.foundation.errors import InvalidRequest, NotFound, TrainyardError
from trainyard.foundation.jobs.channels import ChannelPlan
from trainyard.foundation.jobs.contents import SourceContent, digest_of_objects
from trainyard.foundation.jobs.training.plan import TrainingPlan
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.link.contract import ChannelSpec, InstanceSpec
from trainyard.objects.contract import ObjectStore, ObjectSummary

log = logging.getLogger(__name__)

T = TypeVar("T")

# The content of larger channels stays unknown: a digest of a million objects takes most of a second.
MAX_OBJECTS = 1_000_000

# How long a store may take to tell what it has of one source.
READ_LIMIT_S = 5.0

_CODE = "code"
_PAGE = 1000


def channel_contents(plan: TrainingPlan, specs: Sequence[InstanceSpec]) -> tuple[SourceContent, ...]:
    """Return the content of the channels of a job, which were listed to make the specs of its instances."""
    return tuple(_channel_content(channel, specs) for channel in plan.channels)


def read_in_time(read: Callable[[], T], unknown: T) -> T:
    """Return what `read` returns, or `unknown` if the store fails or does not answer in time.

    The read is then abandoned in its thread, so that neither a recording nor the end of the yard waits for the store.
    """
    found: list[T] = []

    def run() -> None:
        try:
            found.append(read())
        except TrainyardError:
            log.warning("a content could not be read", exc_info=True)

    thread = threading.Thread(target=run, name="trainyard-contents", daemon=True)
    thread.start()
    thread.join(READ_LIMIT_S)
    return found[0] if found else unknown


@dataclass(frozen=True, slots=True)
class SourceContents:
    """Reads what is stored now from the objects."""

    objects: ObjectStore

    def read_code(self, plan: TrainingPlan, account: str, *, fetched_after: datetime) -> SourceContent | None:
        """Return the code of a job, without a digest if it changed after the job fetched it; None if it has none."""
        uri = plan.submit_directory
        # A job without a network has its code in a channel, so that this is a path in the instance.
        if not uri.startswith("s3://"):
            return None
        where = parse_s3_uri(uri, account)
        try:
            info = self.objects.info(where)
        except NotFound:
            return SourceContent(_CODE, uri)
        if info.modified_at > fetched_after:
            return SourceContent(_CODE, uri)
        return _content(_CODE, uri, [(where.key, info.size, info.etag)])

    def read_object(self, name: str, uri: str, account: str) -> SourceContent:
        """Return the content of an object as it is now. Its digest is empty if there is none."""
        try:
            where = parse_s3_uri(uri, account)
            info = self.objects.info(where)
        except (InvalidRequest, NotFound):
            return SourceContent(name, uri)
        return _content(name, uri, [(where.key, info.size, info.etag)])

    def read_prefix(self, name: str, uri: str, account: str) -> SourceContent:
        """Return the content of all objects below a prefix as they are now. Its digest is empty if there are none."""
        try:
            found = list(self._objects_under(parse_s3_uri(uri, account)))
        except (InvalidRequest, NotFound):
            return SourceContent(name, uri)
        return _content(name, uri, [(each.key, each.size, each.etag) for each in found])

    def _objects_under(self, where: Location) -> Iterator[ObjectSummary]:
        after: str | None = ""
        count = 0
        while after is not None and count <= MAX_OBJECTS:
            page = self.objects.list_objects(where.bucket, prefix=where.key, after=after, limit=_PAGE)
            yield from page.objects
            count += len(page.objects)
            after = page.next_after


def _channel_content(channel: ChannelPlan, specs: Sequence[InstanceSpec]) -> SourceContent:
    """Return the content of a channel: all objects that any instance gets."""
    parts = [part for spec in specs for part in spec.channels if part.name == channel.name]
    if channel.file_system:
        return SourceContent(channel.name, f"{channel.file_system}:{channel.directory}")
    if parts and not channel.is_sharded:
        # Each instance gets the same.
        parts = parts[:1]
    return _content(
        channel.name, channel.uri, list({each[0]: each for part in parts for each in _entries(part)}.values())
    )


def _entries(part: ChannelSpec) -> Iterator[tuple[str, int, str]]:
    # Without a listing, as for a manifest, nothing is known of the objects but their keys.
    if part.etags:
        yield from zip(part.keys, part.sizes, part.etags, strict=True)


def _content(name: str, uri: str, entries: Sequence[tuple[str, int, str]]) -> SourceContent:
    if not entries or len(entries) > MAX_OBJECTS:
        return SourceContent(name, uri, objects=len(entries))
    key = uri.removeprefix("s3://").partition("/")[2]
    is_single = len(entries) == 1 and entries[0][0] == key
    return SourceContent(
        name,
        uri,
        digest_of_objects(key, entries),
        etag=entries[0][2].strip('"') if is_single else "",
        objects=len(entries),
        size_bytes=sum(size for _, size, _ in entries),
    )
