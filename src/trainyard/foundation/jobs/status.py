"""The statuses of jobs and rules, and the transitions that make up a job's history."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Status(StrEnum):
    """The primary status of a job. It never goes backwards."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"


class SecondaryStatus(StrEnum):
    """What a job is doing now. AWS tells this of training jobs only; a processing job has the same steps."""

    PENDING = "Pending"
    STARTING = "Starting"
    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    PROCESSING = "Processing"
    UPLOADING = "Uploading"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_TIME_EXCEEDED = "MaxWaitTimeExceeded"
    INTERRUPTED = "Interrupted"
    RESTARTING = "Restarting"


@dataclass(frozen=True, slots=True)
class Transition:
    """One entry of a job's history. The last entry of a job that has not ended has no end either."""

    status: SecondaryStatus
    started_at: datetime
    message: str
    ended_at: datetime | None = None


class RuleStatus(StrEnum):
    """The status of a rule, as in `DebugRuleEvaluationStatuses`."""

    IN_PROGRESS = "InProgress"
    NO_ISSUES_FOUND = "NoIssuesFound"
    ISSUES_FOUND = "IssuesFound"
    ERROR = "Error"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


PRIMARY: Mapping[SecondaryStatus, Status] = {
    SecondaryStatus.PENDING: Status.IN_PROGRESS,
    SecondaryStatus.STARTING: Status.IN_PROGRESS,
    SecondaryStatus.DOWNLOADING: Status.IN_PROGRESS,
    SecondaryStatus.TRAINING: Status.IN_PROGRESS,
    SecondaryStatus.PROCESSING: Status.IN_PROGRESS,
    SecondaryStatus.UPLOADING: Status.IN_PROGRESS,
    SecondaryStatus.INTERRUPTED: Status.IN_PROGRESS,
    SecondaryStatus.RESTARTING: Status.IN_PROGRESS,
    SecondaryStatus.STOPPING: Status.STOPPING,
    SecondaryStatus.COMPLETED: Status.COMPLETED,
    SecondaryStatus.FAILED: Status.FAILED,
    SecondaryStatus.STOPPED: Status.STOPPED,
    SecondaryStatus.MAX_RUNTIME_EXCEEDED: Status.STOPPED,
    SecondaryStatus.MAX_WAIT_TIME_EXCEEDED: Status.STOPPED,
}


FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.STOPPED})


ON_INSTANCES = frozenset({SecondaryStatus.DOWNLOADING, SecondaryStatus.TRAINING, SecondaryStatus.PROCESSING})
