"""Where the events of streams lie on disk."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from trainyard.foundation.errors import NotFound
from trainyard.server.records.contract import Query, Records, Resource, ResourceId, SortBy

STREAM = "log-stream"


def folder_of(logs: Path, stream: Resource) -> Path:
    """The folder of a stream: its own under `logs`, or the one its record names, which another program writes."""
    return Path(stream.body["folder"]) if is_foreign(stream) else logs / stream.id


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


def orphans(records: Records, logs: Path) -> Iterator[Path]:
    """The folders under `logs` whose stream is gone, left by a crash between forgetting it and removing its events."""
    for folder in sorted(logs.glob("*")):
        try:
            records.load_by_id(ResourceId(folder.name))
        except NotFound:
            yield folder
