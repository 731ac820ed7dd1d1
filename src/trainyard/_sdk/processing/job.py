"""A handle on one processing job of a yard."""

import sys
from collections.abc import Iterator
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.processing.outcomes import require_no_failure, summary
from trainyard._sdk.training.cloudwatch import PROCESSING_LOG_GROUP, LogLine, read_log
from trainyard._sdk.training.console import EventPrinter
from trainyard._sdk.training.outcomes import Details
from trainyard._sdk.training.stream import PROCESSING, Description, Event, follow_job


class ProcessingJobHandle:
    """A processing job by name. Creating a handle does not call the yard."""

    def __init__(self, api: Api, name: str) -> None:
        self._api, self._name = api, name

    def __repr__(self) -> str:
        return f"<processing job {self._name}>"

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._name

    @property
    def job_name(self) -> str:
        """The name of the job, as the sagemaker SDK spells it."""
        return self._name

    def describe(self) -> dict[str, Any]:
        """Return the DescribeProcessingJob response."""
        return self._api.call("sagemaker", "DescribeProcessingJob", ProcessingJobName=self._name)

    def details(self) -> Details:
        """Return what only the yard knows: notes, shares, the waterfall, attempts, the failure card and the cost."""
        return self._api.call("trainyard", "DescribeJob", TrainingJobName=self._name, Kind=PROCESSING)

    def stop(self) -> None:
        """Stop the job. The call returns at once; the job is Stopped when its program has ended."""
        self._api.call("sagemaker", "StopProcessingJob", ProcessingJobName=self._name)

    def wait(self, logs: bool = True) -> None:
        """Wait until the job has ended, and print its progress. A stopped job is not an error.

        Ctrl-C ends the wait, not the job.

        Args:
            logs: Whether to print its log too.

        Raises:
            UnexpectedStatusException: The job has failed.
        """
        description = self.describe()
        printer = EventPrinter(
            sys.stdout, sys.stdout, created_at=description["CreationTime"], instance_count=instance_count(description)
        )
        try:
            printer.print_events(follow_job(self._api, self._name, logs=logs, kind=PROCESSING))
        except KeyboardInterrupt:
            sys.stdout.write(f"\n{detached_message(self._name)}\n")
            raise
        description, details = self.describe(), self.details()
        require_no_failure(description, details)
        sys.stdout.write(f"{summary(description, details)}\n")

    def wait_for_end(self) -> Description:
        """Wait without output until the job has ended with any status, and return its description."""
        for _ in follow_job(self._api, self._name, logs=False, kind=PROCESSING):
            pass
        return self.describe()

    def logs(self, wait: bool = True) -> None:
        """Print the log of the job.

        Args:
            wait: Whether to follow the log until the job has ended.
        """
        printer = EventPrinter(sys.stdout, sys.stdout, instance_count=instance_count(self.describe()))
        for event in follow_job(self._api, self._name, kind=PROCESSING) if wait else self._lines_so_far():
            if isinstance(event, LogLine):
                printer.print_line(event)

    def _lines_so_far(self) -> Iterator[Event]:
        return read_log(self._api, self._name, group=PROCESSING_LOG_GROUP)


def instance_count(description: Description) -> int:
    """Return the number of instances of a job."""
    count: int = description["ProcessingResources"]["ClusterConfig"]["InstanceCount"]
    return count


def detached_message(name: str) -> str:
    """Return how to follow or stop a job that nobody waits for any more."""
    return (
        f'Processing job "{name}" continues: `trainyard logs -f {name}` follows its log, `trainyard stop {name}` stops '
        "it."
    )
