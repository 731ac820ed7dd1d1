"""One training job of the yard, from outside."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from trainyard.connection import Api
from trainyard.exceptions import CapacityError, UnexpectedStatusException
from trainyard.following import Description, follow
from trainyard.job_logs import LogLine, written_lines
from trainyard.outcomes import Details, failure, summary
from trainyard.showing import Show


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

    def details(self) -> Details:
        """What the yard knows beyond that: notes, shares, the waterfall, attempts, the failure card, the cost."""
        return self._api.call("trainyard", "DescribeJob", TrainingJobName=self._name)

    def rule_job_summary(self) -> list[dict[str, Any]]:
        """How the rules of the job stand: names, statuses, and what is to be said of them."""
        description = self.describe()
        members = ("DebugRuleEvaluationStatuses", "ProfilerRuleEvaluationStatuses")
        return [dict(status) for member in members for status in description.get(member, ())]

    def stop(self) -> None:
        """Ask the yard to stop the job; it is Stopping then, and Stopped when its script has ended."""
        self._api.call("sagemaker", "StopTrainingJob", TrainingJobName=self._name)

    def update(self, **changes: Mapping[str, Any]) -> None:
        """Change what UpdateTrainingJob can change of a job, by the names of its members."""
        self._api.call("sagemaker", "UpdateTrainingJob", TrainingJobName=self._name, **changes)

    def wait(self, logs: bool = True) -> None:
        """Wait until the job has ended and show how it fares meanwhile.

        Failed raises UnexpectedStatusException. A job that was stopped may have saved all that was wanted of it, and is
        only shown to have been. An interrupt ends the waiting, not the job.
        """
        try:
            self._show(self.describe(), logs=logs)
        except KeyboardInterrupt:
            sys.stdout.write(f"\n{detached(self._name)}\n")
            raise
        description, details = self.describe(), self.details()
        require_no_failure(description, details)
        sys.stdout.write(f"{summary(description, details)}\n")

    def wait_for_end(self) -> Description:
        """Wait in silence until the job has ended, however it ends, and return its description."""
        for _ in follow(self._api, self._name, logs=False):
            pass
        return self.describe()

    def logs(self, wait: bool = True) -> None:
        """Show what the job has written, and what it writes until it has ended if asked to wait."""
        show = Show(sys.stdout, sys.stdout, instance_count=instance_count(self.describe()))
        for event in follow(self._api, self._name) if wait else written_lines(self._api, self._name):
            if isinstance(event, LogLine):
                show.line(event)

    def _show(self, described: Description, *, logs: bool) -> None:
        show = Show(
            sys.stdout, sys.stdout, created_at=described["CreationTime"], instance_count=instance_count(described)
        )
        show.all(follow(self._api, self._name, logs=logs))


def hyperparameter(text: str) -> Any:
    """The value of a described hyperparameter: SDKs send JSON; any other text is taken as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def instance_count(description: Description) -> int:
    """How many instances a job has; those of a heterogeneous cluster are counted in its groups."""
    resources = description["ResourceConfig"]
    groups = resources.get("InstanceGroups", ())
    count: int = resources.get("InstanceCount") or sum(group["InstanceCount"] for group in groups) or 1
    return count


def require_no_failure(description: Description, details: Details) -> None:
    """Raise when the job of a description has failed; the message has its name, the reason and what to try."""
    status = description["TrainingJobStatus"]
    if status != "Failed":
        return
    kind = CapacityError if "CapacityError" in description.get("FailureReason", "") else UnexpectedStatusException
    raise kind(failure(description, details), ("Completed", "Stopped"), status)


def detached(name: str) -> str:
    """What to do with a job that nobody waits for any more."""
    return f'Training job "{name}" goes on: `trainyard logs -f {name}` to come back, `trainyard stop {name}` to end it.'
