"""Local data that clients uploaded as inputs of jobs, and that no job needs any more.

An upload is needed while a client holds it, while a training or tuning job names it that has not ended, and for some
time after the last one that did has ended; not when that job was removed. A client may begin to use an upload while it
is being removed, and then either keeps it or finds it gone: the object that says that it is complete, or else those
that say who holds it, are deleted first, and only if they are as they were when the upload was found not needed.
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
from trainyard.foundation.jobs import FINAL
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Bucket, Listing, ObjectStore, ObjectSummary, Precondition, PreconditionFailed
from trainyard.objects.index import Index
from trainyard.server import jobs, tuning
from trainyard.server.garbage import Garbage
from trainyard.server.object_stores import open_objects
from trainyard.server.records.contract import Query, Records
from trainyard.server.settings import ServerSettings

INPUTS = "inputs that no job needs"

_PAGE = 1000


class ListsObjects(Protocol):
    """What is asked of a store to find uploads."""

    def buckets(self, *, account: str | None, name: str | None) -> Sequence[Bucket]: ...

    def list_objects(self, ref: BucketRef, /, *, prefix: str, delimiter: str, after: str, limit: int) -> Listing: ...


@dataclass(frozen=True, slots=True)
class InputUpload:
    """One upload as it was found. `commit` is None where it is not complete."""

    bucket: BucketRef
    name: str
    commit: ObjectSummary | None
    holds: Sequence[ObjectSummary] = field(default_factory=tuple)

    def is_held(self, now: datetime) -> bool:
        return any(hold.modified_at > now - HELD_FOR for hold in self.holds)


def sweep_inputs(home: Home, records: Records, *, settings: ServerSettings, now: datetime, dry_run: bool) -> Garbage:
    """Remove, or with `dry_run` only weigh, the uploads that nobody needs. May run beside a yard."""
    if dry_run and not settings.objects:
        if not (home.objects / "index.sqlite").exists():
            return Garbage(INPUTS, 0, 0)
        with closing(Index(home.objects / "index.sqlite")) as index:  # opening the whole store would clear it up
            return _weigh(index, unneeded_inputs(index, records, kept=settings.inputs_kept, now=now))
    with closing(open_objects(home, settings)) as objects:
        unneeded = unneeded_inputs(objects, records, kept=settings.inputs_kept, now=now)
        if dry_run:
            return _weigh(objects, unneeded)
        return _weigh(objects, unneeded, remove=objects)


def unneeded_inputs(objects: ListsObjects, records: Records, *, kept: timedelta, now: datetime) -> list[InputUpload]:
    """The uploads that no client holds and no job needs."""
    # In this order: a client makes its job before it lets go of the upload, so that one of the two is always seen.
    found = [
        upload for bucket in objects.buckets(account=None, name=None) for upload in _uploads_in(objects, bucket.ref)
    ]
    free = [upload for upload in found if not upload.is_held(now)]
    needed = _needed(records, ended_after=now - kept) if free else set()
    return [upload for upload in free if (upload.bucket.account, upload.name) not in needed]


def remove_input(objects: ObjectStore, upload: InputUpload) -> bool:
    """Whether an upload could be removed; not when a client has begun to use it since it was found."""
    bucket = upload.bucket
    deciding = [upload.commit] if upload.commit is not None else upload.holds
    for entry in deciding:
        try:
            was_there = objects.delete(Location(bucket, entry.key), precondition=Precondition(etag=entry.etag))
        except PreconditionFailed:
            return False
        if not was_there:
            return False
    files = [entry.key for entry in _entries(objects, bucket, files_prefix(upload.name))]
    objects.delete_many(bucket, files)  # together, so that no job sees a part of them
    objects.delete_many(bucket, [hold.key for hold in upload.holds] + [f"{MANIFESTS}{upload.name}"])
    return True


def _weigh(objects: ListsObjects, uploads: Sequence[InputUpload], *, remove: ObjectStore | None = None) -> Garbage:
    count = size = 0
    for upload in uploads:
        upload_bytes = sum(entry.size for entry in _entries(objects, upload.bucket, files_prefix(upload.name)))
        if remove is None or remove_input(remove, upload):
            count, size = count + 1, size + upload_bytes
    return Garbage(INPUTS, count, size)


def _uploads_in(objects: ListsObjects, bucket: BucketRef) -> Iterator[InputUpload]:
    names = {*_folders(objects, bucket, TREES), *_folders(objects, bucket, HOLDS)}
    names |= {entry.key.removeprefix(MANIFESTS) for entry in _entries(objects, bucket, MANIFESTS)}
    # Names that are not ours are not ours to remove.
    for name in sorted(name for name in names if digest_of_tree(name)):
        commits = [entry for entry in _entries(objects, bucket, f"{COMMITS}{name}") if entry.key == f"{COMMITS}{name}"]
        holds = list(_entries(objects, bucket, holds_prefix(name)))
        yield InputUpload(bucket, name, commits[0] if commits else None, holds)


def _needed(records: Records, *, ended_after: datetime) -> set[tuple[str, str]]:
    """The uploads that jobs need, each with the account of the job."""
    needed: set[tuple[str, str]] = set()
    for kind in (tuning.KIND, jobs.KIND):  # in this order, as tuning jobs make training jobs
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


def _folders(objects: ListsObjects, bucket: BucketRef, prefix: str) -> Iterator[str]:
    after: str | None = ""
    while after is not None:
        page = objects.list_objects(bucket, prefix=prefix, delimiter="/", after=after, limit=_PAGE)
        yield from (each.removeprefix(prefix).rstrip("/") for each in page.prefixes)
        after = page.next_after


def _entries(objects: ListsObjects, bucket: BucketRef, prefix: str) -> Iterator[ObjectSummary]:
    after: str | None = ""
    while after is not None:
        page = objects.list_objects(bucket, prefix=prefix, delimiter="", after=after, limit=_PAGE)
        yield from page.objects
        after = page.next_after
