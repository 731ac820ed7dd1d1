"""Makes the logs and metrics of a job visible in CloudWatch."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.link.folders import AttemptRef, InstanceFolder, InstanceRef
from trainyard.server.control.instances.reports import live_attempt
from trainyard.server.log_streams import GROUP, open_foreign_stream
from trainyard.server.metric_series import MetricId, metric_draft, open_foreign_metric
from trainyard.server.records.contract import Records, ResourceId, ResourceKey

HOST_DIMENSION = "Host"
HOST_UNIT = "Percent"


@dataclass(frozen=True, slots=True)
class JobViews:
    """Records where the log streams and metrics of instances are, relative to the yard's own folders.

    `log_group` is that of all jobs of the kind, and `dimension` names the job in the metrics of its program.
    """

    records: Records
    jobs: Path
    logs: Path
    metrics: Path
    log_group: str
    dimension: str

    def open_streams(self, ref: AttemptRef, job: InstanceJob, *, now: datetime) -> None:
        """Open a log stream for each instance, named as on AWS."""
        group, epoch = ResourceKey(job.account, GROUP, self.log_group), _epoch(job)
        for instance in live_attempt(job).instances:
            name = f"{job.name}/{instance.name}-{epoch}"
            folder = os.path.relpath(self._folder(ref, instance.name).logs, self.logs)
            open_foreign_stream(self.records, group, name, region=job.region, folder=folder, now=now)

    def open_metrics(self, ref: AttemptRef, job: InstanceJob, names: Iterable[str], *, now: datetime) -> None:
        """Open CloudWatch metrics with the points of all instances of all attempts. They are deleted with the job."""
        folders = [
            self._folder(AttemptRef(ref.job_id, attempt.number), instance.name).metrics
            for attempt in job.attempts
            for instance in attempt.instances
        ]
        paths = [os.path.relpath(folder, self.metrics) for folder in folders]
        for name in names:
            metric = MetricId(self.log_group, name, ((self.dimension, job.name),))
            draft = replace(metric_draft(metric, job.account, job.region), parent=ResourceId(ref.job_id))
            open_foreign_metric(self.records, draft, folders=paths, now=now)

    def open_host_metrics(
        self, ref: AttemptRef, job: InstanceJob, instance: str, names: Iterable[str], *, now: datetime
    ) -> None:
        """Open CloudWatch metrics with the utilisation of the host of an instance, in all attempts."""
        attempts = (AttemptRef(ref.job_id, attempt.number) for attempt in job.attempts)
        paths = [os.path.relpath(self._folder(attempt, instance).hardware, self.metrics) for attempt in attempts]
        for name in names:
            metric = MetricId(self.log_group, name, ((HOST_DIMENSION, f"{job.name}/{instance}"),))
            draft = replace(metric_draft(metric, job.account, job.region), parent=ResourceId(ref.job_id))
            open_foreign_metric(self.records, draft, folders=paths, unit=HOST_UNIT, now=now)

    def _folder(self, ref: AttemptRef, instance: str) -> InstanceFolder:
        return InstanceRef(ref, instance).folder(self.jobs)


def _epoch(job: InstanceJob) -> int:
    """Return the second at which the last attempt was placed, but later than that of the attempt before."""
    epoch = 0
    for attempt in job.attempts:
        epoch = max(epoch + 1, int(attempt.placed_at.timestamp()))
    return epoch
