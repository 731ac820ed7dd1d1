"""Where the events of streams lie on disk."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from trainyard.foundation.arns import arn
from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.server.records.contract import Body, Draft, Query, Records, Resource, ResourceId, ResourceKey, SortBy

GROUP = "log-group"
STREAM = "log-stream"


def folder_of(logs: Path, stream: Resource) -> Path:
    """The folder of a stream: its own under `logs`, or the one its record names as seen from there."""
    # By name, because `logs` may be a link to another place, from which the way would lead elsewhere.
    return Path(os.path.normpath(logs / stream.body.get("folder", stream.id)))


def is_foreign(stream: Resource) -> bool:
    """Whether another program writes and owns the events of the stream."""
    return "folder" in stream.body


def remove_events(logs: Path, stream: Resource) -> None:
    """Remove the events of a stream that is forgotten; those of another program stay with their owner."""
    if not is_foreign(stream):
        shutil.rmtree(folder_of(logs, stream), ignore_errors=True)


def streams_in(records: Records, group: Resource) -> Iterator[Resource]:
    """All streams of a group, page by page."""
    after: str | None = ""
    while after is not None:
        page = records.find(Query(STREAM, parent=group.id, sort_by=SortBy.NAME, limit=1000, after=after))
        yield from page.resources
        after = page.next_after


def ensure_group(records: Records, key: ResourceKey, *, region: str, now: datetime) -> Resource:
    """The group, made if it is not there."""
    with contextlib.suppress(NotFound):
        return records.load(key)
    arn = log_group_arn(region, key.account, key.name)
    with contextlib.suppress(AlreadyExists):
        return records.create(Draft(key, region, group_body(), arn=arn), now=now)
    return records.load(key)


def open_foreign_stream(
    records: Records, group: ResourceKey, name: str, *, region: str, folder: str, now: datetime
) -> None:
    """Show what another program writes to `folder` as a stream, in a group that is made if it is not there.

    Asked again it changes nothing.
    """
    key = ResourceKey(group.account, STREAM, f"{group.name}:{name}")
    while True:
        parent = ensure_group(records, group, region=region, now=now)
        try:
            records.create(Draft(key, region, {"folder": folder}, parent=parent.id), now=now)
        except AlreadyExists:
            return
        except NotFound:  # the group was deleted just now
            continue
        return


def forget_foreign_streams(records: Records, group: ResourceKey, *, prefix: str, now: datetime) -> None:
    """Take away the streams of another program whose names begin so; their folders stay with their owner."""
    names = f"{group.name}:{prefix}"
    found = records.find(Query(STREAM, account=group.account, name_prefix=names, sort_by=SortBy.NAME, limit=1000))
    for stream in found.resources:
        if is_foreign(stream):
            records.delete(stream, now=now)


def group_body(*, log_class: str = "STANDARD", kms_key: str | None = None) -> Body:
    return {"class": log_class, "kms_key": kms_key, "retention_days": None}


def log_group_arn(region: str, account: str, name: str) -> str:
    return arn("logs", region, account, f"log-group:{name}")


def orphans(records: Records, logs: Path) -> Iterator[Path]:
    """The folders under `logs` whose stream is gone, left by a crash between forgetting it and removing its events."""
    for folder in sorted(logs.glob("*")):
        try:
            records.load_by_id(ResourceId(folder.name))
        except NotFound:
            yield folder
