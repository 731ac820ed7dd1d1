"""Jobs with instances of any kind: read one, or write a change to it, without knowing its kind."""

from collections.abc import Mapping

from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.foundation.jobs.processing.job import ProcessingJob
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.server.jobs import processing, training
from trainyard.server.records.contract import Change, NewEvent, Resource

# The kinds of records by the words of the yard's own API.
RECORD_KINDS: Mapping[str, str] = {"training": training.KIND, "processing": processing.KIND}


def has_instances(resource: Resource) -> bool:
    """Whether a record is a job with instances."""
    return resource.key.kind in RECORD_KINDS.values()


def instance_job_of(resource: Resource) -> InstanceJob:
    """Return the job of a record that is one with instances."""
    if resource.key.kind == training.KIND:
        return training.job_of(resource)
    assert resource.key.kind == processing.KIND, "no other kind has instances"
    return processing.job_of(resource)


def change_and_events(resource: Resource, after: InstanceJob) -> tuple[Change, list[NewEvent]]:
    """Return what to write to store a job as it is now, and the events that it makes."""
    match instance_job_of(resource), after:
        case TrainingJob() as before, TrainingJob() as job:
            return training.change_to(resource, job), training.events_of(before, job)
        case ProcessingJob() as before, ProcessingJob() as job:
            return processing.change_to(resource, job), processing.events_of(before, job)
    raise AssertionError("a job never changes its kind")
