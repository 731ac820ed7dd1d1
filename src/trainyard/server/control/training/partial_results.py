"""Deletes what an agent that died during the upload left of results that are not archives.

An archive is one object, so it is whole or absent anyway. The many objects of results without compression are deleted
by the agent when their upload fails, and here when the agent could not do that any more.
"""

import logging

from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.jobs.attempts import Attempt, OutcomeKind
from trainyard.foundation.jobs.result_locations import MODEL, OUTPUT, result_uri
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.locations import parse_s3_uri
from trainyard.objects.contract import ObjectStore
from trainyard.server.control.instances.reports import live_attempt

log = logging.getLogger(__name__)


def discard_partial_results(objects: ObjectStore, job: TrainingJob) -> None:
    """Delete results that the live attempt of a job began to store and did not report. Nothing of it may run."""
    if job.plan.is_output_compressed or not _was_cut_short(live_attempt(job)):
        return
    for kind in (MODEL, OUTPUT):
        if kind in job.artifacts:
            continue
        where = parse_s3_uri(result_uri(job.plan.output_path, job.name, kind, is_compressed=False), job.account)
        try:
            while found := objects.list_objects(where.bucket, prefix=where.key).objects:
                objects.delete_many(where.bucket, [each.key for each in found])
        except TrainyardError as error:
            log.warning("partial results stay", exc_info=error, extra={"job": job.name, "where": str(where)})


def _was_cut_short(attempt: Attempt) -> bool:
    """Whether an instance died while it uploaded."""
    return any(
        each.status is SecondaryStatus.UPLOADING and each.outcome in (OutcomeKind.LOST, None)
        for each in attempt.instances
    )
