"""The work on processing jobs. They do nothing at any moment that not every job with instances does."""

from dataclasses import dataclass

from trainyard.foundation.jobs.processing.job import ProcessingJob
from trainyard.server.control.contract import JobStorage
from trainyard.server.control.instances.work import InstanceWork
from trainyard.server.jobs import processing


@dataclass(frozen=True, slots=True)
class ProcessingWork(InstanceWork[ProcessingJob]):
    """The work on processing jobs, one step per call. Calls block; threads may work on different jobs."""

    @property
    def storage(self) -> JobStorage[ProcessingJob]:
        return processing
