"""Log streams: their records, and the folders that hold their events."""

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
    """Return the folder of a stream: its own under `logs`, or the one that its record names relative to `logs`."""
    # Normalized without resolving links: `logs` may be a link, and the path is not relative to its target.
    return Path(os.path.normpath(logs / stream.body.get("folder", stream.id)))


def is_foreign(stream: Resource) -> bool:
    """Whether another program writes and owns the events of the stream."""
    return "folder" in stream.body


def remove_events(logs: Path, stream: Resource) -> None:
    """Remove the events of a deleted stream. Events of another program stay with their owner."""
    if not is_foreign(stream):
        shutil.rmtree(folder_of(logs, stream), ignore_errors=True)


def load_streams(records: Records, group: Resource) -> Iterator[Resource]:
    """Yield all streams of a group, page by page."""
    after: str | None = ""
    while after is not None:
        page = records.find(Query(STREAM, parent=group.id, sort_by=SortBy.NAME, limit=1000, after=after))
        yield from page.resources
        after = page.next_after


def ensure_group(records: Records, key: ResourceKey, *, region: str, now: datetime) -> Resource:
    """Return a log group. Create it if it does not exist."""
    with contextlib.suppress(NotFound):
        return records.load(key)
    arn = log_group_arn(region, key.account, key.name)
    with contextlib.suppress(AlreadyExists):
        return records.create(Draft(key, region, group_body(), arn=arn), now=now)
    return records.load(key)


def open_foreign_stream(
    records: Records, group: ResourceKey, name: str, *, region: str, folder: str, now: datetime
) -> None:
    """Show what another program writes to `folder` as a stream. Create its group if it does not exist.

    Repeated calls change nothing.
    """
    key = ResourceKey(group.account, STREAM, f"{group.name}:{name}")
    while True:
        parent = ensure_group(records, group, region=region, now=now)
        try:
            records.create(Draft(key, region, {"folder": folder}, parent=parent.id), now=now)
        except AlreadyExists:
            return
        except NotFound:
            # The group was deleted meanwhile.
            continue
        return


def forget_foreign_streams(records: Records, group: ResourceKey, *, prefix: str, now: datetime) -> None:
    """Delete the streams of another program whose names start with `prefix`. Their folders stay with their owner."""
    names = f"{group.name}:{prefix}"
    found = records.find(Query(STREAM, account=group.account, name_prefix=names, sort_by=SortBy.NAME, limit=1000))
    for stream in found.resources:
        if is_foreign(stream):
            records.delete(stream, now=now)


def group_body(*, log_class: str = "STANDARD", kms_key: str | None = None) -> Body:
    return {"class": log_class, "kms_key": kms_key, "retention_days": None}


def log_group_arn(region: str, account: str, name: str) -> str:
    return arn("logs", region, account, f"log-group:{name}")


def find_orphans(records: Records, logs: Path) -> Iterator[Path]:
    """Yield the folders under `logs` whose stream is deleted. A crash during the deletion can leave them behind."""
    for folder in sorted(logs.glob("*")):
        try:
            records.load_by_id(ResourceId(folder.name))
        except NotFound:
            yield folder
