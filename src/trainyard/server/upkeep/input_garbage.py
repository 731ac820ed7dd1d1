"""Garbage collection of local data that clients uploaded as job inputs and that no job needs any more.

An upload is needed while a client holds it, while an unfinished job of any kind names it, and for some time
after the last such job has ended, unless that job was deleted. A client may start to use an upload during its removal.
It then either keeps the upload or finds it gone: the commit object, or else the hold objects, are deleted first, and
only if they are unchanged since the upload was found unneeded.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from trainyard.foundation.home import Home
from trainyard.foundation.input_trees import (
    COMMITS,
    HELD_FOR,
    HOLDS,
    MANIFESTS,
    TREES,
    digest_of_tree,
    files_prefix,
    holds_prefix,
    trees_named_in,
)
from trainyard.foundation.jobs.status import FINAL
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Bucket, Listing, ObjectStore, ObjectSummary, Precondition, PreconditionFailed
from trainyard.objects.index import Index
from trainyard.server.jobs import processing, training, tuning
from trainyard.server.records.contract import Query, Records
from trainyard.server.settings import ServerSettings
from trainyard.server.storage import open_objects
from trainyard.server.upkeep.garbage import Garbage

INPUTS = "inputs that no job needs"

_PAGE = 1000


class ListsObjects(Protocol):
    """The part of an object store that finds uploads."""

    def buckets(self, *, account: str | None, name: str | None) -> Sequence[Bucket]: ...

    def list_objects(self, ref: BucketRef, /, *, prefix: str, delimiter: str, after: str, limit: int) -> Listing: ...


@dataclass(frozen=True, slots=True)
class InputUpload:
    """An upload as it was found. `commit` is None if the upload is incomplete."""

    bucket: BucketRef
    name: str
    commit: ObjectSummary | None
    holds: Sequence[ObjectSummary] = field(default_factory=tuple)

    def is_held(self, now: datetime) -> bool:
        return any(hold.modified_at > now - HELD_FOR for hold in self.holds)


def sweep_inputs(home: Home, records: Records, *, settings: ServerSettings, now: datetime, dry_run: bool) -> Garbage:
    """Remove the uploads that nobody needs, or only measure them with `dry_run`. May run beside a yard."""
    if dry_run and not settings.objects:
        if not (home.objects / "index.sqlite").exists():
            return Garbage(INPUTS, 0, 0)
        # Opening the whole store would remove its garbage.
        with closing(Index(home.objects / "index.sqlite")) as index:
            return _measure(index, unneeded_inputs(index, records, retention=settings.inputs_kept, now=now))
    with closing(open_objects(home, settings)) as objects:
        unneeded = unneeded_inputs(objects, records, retention=settings.inputs_kept, now=now)
        if dry_run:
            return _measure(objects, unneeded)
        return _measure(objects, unneeded, remove=objects)


def unneeded_inputs(
    objects: ListsObjects, records: Records, *, retention: timedelta, now: datetime
) -> list[InputUpload]:
    """Return the uploads that no client holds and no job needs."""
    # In this order: a client creates its job before it releases the upload, so one of the two is always visible.
    found = [
        upload for bucket in objects.buckets(account=None, name=None) for upload in _find_uploads(objects, bucket.ref)
    ]
    free = [upload for upload in found if not upload.is_held(now)]
    needed = _find_needed(records, ended_after=now - retention) if free else set()
    return [upload for upload in free if (upload.bucket.account, upload.name) not in needed]


def remove_input(objects: ObjectStore, upload: InputUpload) -> bool:
    """Remove an upload, and return whether that was possible. A client may have started to use it meanwhile."""
    bucket = upload.bucket
    deciding = [upload.commit] if upload.commit is not None else upload.holds
    for entry in deciding:
        try:
            was_there = objects.delete(Location(bucket, entry.key), precondition=Precondition(etag=entry.etag))
        except PreconditionFailed:
            return False
        if not was_there:
            return False
    files = [entry.key for entry in _list_objects(objects, bucket, files_prefix(upload.name))]
    # All at once, so that no job sees only some of them.
    objects.delete_many(bucket, files)
    objects.delete_many(bucket, [hold.key for hold in upload.holds] + [f"{MANIFESTS}{upload.name}"])
    return True


def _measure(objects: ListsObjects, uploads: Sequence[InputUpload], *, remove: ObjectStore | None = None) -> Garbage:
    count = size = 0
    for upload in uploads:
        upload_bytes = sum(entry.size for entry in _list_objects(objects, upload.bucket, files_prefix(upload.name)))
        if remove is None or remove_input(remove, upload):
            count, size = count + 1, size + upload_bytes
    return Garbage(INPUTS, count, size)


def _find_uploads(objects: ListsObjects, bucket: BucketRef) -> Iterator[InputUpload]:
    names = {*_list_folders(objects, bucket, TREES), *_list_folders(objects, bucket, HOLDS)}
    names |= {entry.key.removeprefix(MANIFESTS) for entry in _list_objects(objects, bucket, MANIFESTS)}
    # Other names do not belong to uploads and must not be removed.
    for name in sorted(name for name in names if digest_of_tree(name)):
        commits = [
            entry for entry in _list_objects(objects, bucket, f"{COMMITS}{name}") if entry.key == f"{COMMITS}{name}"
        ]
        holds = list(_list_objects(objects, bucket, holds_prefix(name)))
        yield InputUpload(bucket, name, commits[0] if commits else None, holds)


def _find_needed(records: Records, *, ended_after: datetime) -> set[tuple[str, str]]:
    """Return the uploads that jobs need, as pairs of account and name."""
    needed: set[tuple[str, str]] = set()
    # In this order, because tuning jobs create training jobs.
    for kind in (tuning.KIND, training.KIND, processing.KIND):
        after: str | None = ""
        while after is not None:
            page = records.find(Query(kind, limit=_PAGE, after=after))
            for resource in page.resources:
                if resource.status in FINAL and resource.modified_at <= ended_after:
                    continue
                named = trees_named_in(json.dumps(resource.body["request"], default=str))
                needed |= {(resource.key.account, name) for name in named}
            after = page.next_after
    return needed


def _list_folders(objects: ListsObjects, bucket: BucketRef, prefix: str) -> Iterator[str]:
    after: str | None = ""
    while after is not None:
        page = objects.list_objects(bucket, prefix=prefix, delimiter="/", after=after, limit=_PAGE)
        yield from (each.removeprefix(prefix).rstrip("/") for each in page.prefixes)
        after = page.next_after


def _list_objects(objects: ListsObjects, bucket: BucketRef, prefix: str) -> Iterator[ObjectSummary]:
    after: str | None = ""
    while after is not None:
        page = objects.list_objects(bucket, prefix=prefix, delimiter="", after=after, limit=_PAGE)
        yield from page.objects
        after = page.next_after
