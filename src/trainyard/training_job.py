"""One training job of the yard, from outside."""

import sys
from typing import Any

from trainyard.connection import Api
from trainyard.exceptions import CapacityError, UnexpectedStatusException
from trainyard.following import Description, Ended, JobLogs, LogLine, follow
from trainyard.showing import Show, summary


class TrainingJob:
    """A training job by its name. Making one of these asks the yard nothing."""

    def __init__(self, api: Api, name: str) -> None:
        self._api, self._name = api, name

    @property
    def name(self) -> str:
        return self._name

    @property
    def job_name(self) -> str:
        return self._name

    def describe(self) -> dict[str, Any]:
        """What DescribeTrainingJob answers."""
        return self._api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=self._name)

    def stop(self) -> None:
        """Ask the yard to stop the job; it is Stopping then, and Stopped when its script has ended."""
        self._api.call("sagemaker", "StopTrainingJob", TrainingJobName=self._name)

    def wait(self, logs: bool = True) -> None:
        """Wait until the job has ended and show how it fares meanwhile.

        Anything but Completed raises UnexpectedStatusException. An interrupt ends the waiting, not the job.
        """
        described = self.describe()
        show = Show(sys.stdout, sys.stdout, created_at=described["CreationTime"])
        try:
            ended = show.all(
                follow(self._api, self._name, logs=JobLogs(self._api, self._name) if logs else None),
                instance_count=described["ResourceConfig"].get("InstanceCount", 1),
            )
        except KeyboardInterrupt:
            sys.stdout.write(f"\n{detached(self._name)}\n")
            raise
        require_completed(ended)
        sys.stdout.write(f"{summary(ended)}\n")

    def wait_for_end(self) -> Description:
        """Wait in silence until the job has ended, however it ends, and return its description."""
        for event in follow(self._api, self._name, logs=None):
            if isinstance(event, Ended):
                return event.description
        raise AssertionError("following a job ends with its end")

    def logs(self, wait: bool = True) -> None:
        """Show what the job has written, and what it writes until it has ended if asked to wait."""
        show = Show(sys.stdout, sys.stdout)
        is_named = self.describe()["ResourceConfig"].get("InstanceCount", 1) > 1
        logs = JobLogs(self._api, self._name)
        for event in follow(self._api, self._name, logs=logs) if wait else logs.read():
            if isinstance(event, LogLine):
                show.line(event, is_named=is_named)


def require_completed(description: Description) -> None:
    """Raise unless the job of a description has completed; the message has its name and the reason."""
    status = description["TrainingJobStatus"]
    if status == "Completed":
        return
    kind = CapacityError if "CapacityError" in description.get("FailureReason", "") else UnexpectedStatusException
    raise kind(summary(description), ("Completed",), status)


def detached(name: str) -> str:
    """What to do with a job that nobody waits for any more."""
    return f'Training job "{name}" goes on: `trainyard logs -f {name}` to come back, `trainyard stop {name}` to end it.'
