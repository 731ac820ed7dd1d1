"""A processing job: its plan, its history, and what its program says at the end."""

from dataclasses import dataclass
from typing import ClassVar

from trainyard.foundation.jobs.instance_job import InstanceJob, Lifecycle
from trainyard.foundation.jobs.processing.plan import ProcessingPlan
from trainyard.foundation.jobs.processing.statuses import LIFECYCLE

# What an instance may say, and all instances of a job together.
MAX_EXIT_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class ProcessingJob(InstanceJob):
    """A processing job as it is stored."""

    lifecycle: ClassVar[Lifecycle] = LIFECYCLE

    plan: ProcessingPlan

    @property
    def exit_message(self) -> str:
        """What the programs of all instances left in /opt/ml/output/message in the last attempt, in order."""
        instances = self.attempts[-1].instances if self.attempts else ()
        return "".join(instance.message for instance in instances)[:MAX_EXIT_MESSAGE]
