"""Retention: removes the files of jobs that ended long ago. The jobs stay, with the last values of their metrics."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from trainyard.foundation.confined import remove_tree, tree_size
from trainyard.foundation.errors import NotFound
from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.server.jobs.instance_job_kinds import change_and_events, has_instances, instance_job_of
from trainyard.server.records.contract import Records, Resource, ResourceId
from trainyard.server.upkeep.garbage import Garbage

EXPIRED_FILES = "files of jobs that ended long ago"

log = logging.getLogger(__name__)


def remove_expired_files(
    jobs: Path, records: Records, *, kept: timedelta, now: datetime, dry_run: bool = False
) -> Garbage:
    """Remove the folders of jobs that ended longer than `kept` ago, or only measure them. Zero keeps all of them.

    Each of these jobs gets a note first. Only jobs that still have a folder are considered, so that the work does not
    grow with the number of jobs in the records.
    """
    count = size = 0
    for folder, resource in _expired_folders(jobs, records, before=now - kept) if kept else ():
        count, size = count + 1, size + tree_size(folder)
        if not dry_run and _add_note(records, resource, kept=kept, now=now):
            # The next run removes what is left.
            with suppress(OSError):
                remove_tree(folder)
    if count and not dry_run:
        log.info("files of ended jobs removed", extra={"jobs": count, "bytes": size})
    return Garbage(EXPIRED_FILES, count, size)


def _expired_folders(jobs: Path, records: Records, *, before: datetime) -> Iterator[tuple[Path, Resource]]:
    """Yield the folders of jobs that ended before a time, with their records."""
    names = sorted(entry.name for entry in os.scandir(jobs)) if jobs.is_dir() else []
    for name in names:
        try:
            resource = records.load_by_id(ResourceId(name))
        except NotFound:
            # The sweep of deleted jobs removes it.
            continue
        # Resources are created before they end, and their ids are in the order of their creation.
        if resource.created_at >= before:
            return
        if has_instances(resource) and _has_ended_before(instance_job_of(resource), before):
            yield jobs / name, resource


def _has_ended_before(job: InstanceJob, before: datetime) -> bool:
    # Until its warm pool has ended, the job is not over.
    kept_s = job.plan.keep_alive_s if isinstance(job, TrainingJob) else 0
    return job.ended_at is not None and job.ended_at + timedelta(seconds=kept_s) < before


def _add_note(records: Records, resource: Resource, *, kept: timedelta, now: datetime) -> bool:
    """Add the note to the job, and return whether the job was unchanged meanwhile."""
    after = instance_job_of(resource).with_notes(
        f"Its log and other files were removed on {now:%Y-%m-%d}: the yard keeps them for {_text(kept)} after the end "
        "of a job."
    )
    change, events = change_and_events(resource, after)
    return records.apply(resource, change, now=now, events=events) is not None


def _text(kept: timedelta) -> str:
    return f"{kept.days} days" if kept.days > 1 and not kept.seconds else f"{kept / timedelta(hours=1):g} hours"
