"""What is still to be recorded in the lineage: one record for each job that ends and each package that changes.

A recording is stored right before the change that it is about, so a yard that is killed in between forgets none, and
does no harm if the change never follows. It is gone once its entities and associations are stored.
"""

import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import AlreadyExists
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.records.contract import Draft, Records, Resource, ResourceKey

KIND = "lineage-recording"
JOB, PACKAGE = "job", "package"

# The change follows at once; otherwise the recording is tried again.
_FIRST_LOOK = timedelta(milliseconds=50)


@dataclass(frozen=True, slots=True)
class Recording:
    """A job or package to record. `created_us` tells a job from an earlier or later one of the same name."""

    subject: str
    name: str
    created_us: int = 0
    tries: int = 0


def kind_at(site: str) -> str:
    """Return the kind of the recordings of a yard. Only the yard with the objects of a job can read them."""
    return f"{KIND}@{site}" if site else KIND


def ensure_job_recording(records: Records, job: TrainingJob, *, now: datetime) -> None:
    """Store the recording of a job that is about to end."""
    recording = Recording(JOB, job.name, to_micros(job.created_at))
    key = ResourceKey(job.account, kind_at(job.site), f"{JOB}/{job.name}/{recording.created_us}")
    _create(records, Draft(key, job.region, to_plain(recording), due_at=now + _FIRST_LOOK), now=now)


def ensure_package_recording(records: Records, arn: str, *, title: str, site: str, now: datetime) -> None:
    """Store the recording of a model package that is about to be created or changed."""
    _, _, _, region, account, _ = arn.split(":", 5)
    key = ResourceKey(account, kind_at(site), f"{PACKAGE}/{title}/{to_micros(now)}")
    _create(records, Draft(key, region, to_plain(Recording(PACKAGE, title)), due_at=now + _FIRST_LOOK), now=now)


def recording_of(resource: Resource) -> Recording:
    return from_plain(Recording, resource.body)


def _create(records: Records, draft: Draft, *, now: datetime) -> None:
    # It was stored before.
    with contextlib.suppress(AlreadyExists):
        records.create(draft, now=now)
