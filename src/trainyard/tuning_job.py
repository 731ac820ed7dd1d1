"""One hyperparameter tuning job of the yard, from outside."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from trainyard.connection import Api
from trainyard.exceptions import UnexpectedStatusException
from trainyard.following import FINAL, Description, Patience
from trainyard.foundation.errors import Unavailable
from trainyard.tuning_text import Progress, summary
from trainyard.wire.client import CallFailed

LOOK_S = 0.5  # between two looks at a tuning job

_PAGE = 100


class TuningJob:
    """A tuning job by its name. Making one of these asks the yard nothing."""

    def __init__(self, api: Api, name: str) -> None:
        self._api, self._name = api, name

    @property
    def name(self) -> str:
        return self._name

    @property
    def job_name(self) -> str:
        return self._name

    def describe(self) -> dict[str, Any]:
        """What DescribeHyperParameterTuningJob answers."""
        return self._api.call("sagemaker", "DescribeHyperParameterTuningJob", HyperParameterTuningJobName=self._name)

    def details(self) -> dict[str, Any]:
        """What the yard knows beyond that: notes, the seed, why it begins no further training jobs."""
        return self._api.call("trainyard", "DescribeTuningJob", HyperParameterTuningJobName=self._name)

    def trials(self) -> list[dict[str, Any]]:
        """The summaries of its training jobs in the order in which they were made, and numbered in their names."""
        return sorted(self._pages(), key=lambda trial: (trial["CreationTime"], trial["TrainingJobName"]))

    def stop(self) -> None:
        """Ask the yard to stop it and the training jobs that run; one that has ended stays as it is."""
        try:
            self._api.call("sagemaker", "StopHyperParameterTuningJob", HyperParameterTuningJobName=self._name)
        except CallFailed:
            if self.describe()["HyperParameterTuningJobStatus"] not in FINAL:
                raise

    def wait(self, logs: bool = True) -> None:
        """Wait until it has ended, with a line for every training job that ends meanwhile, unless told otherwise.

        Failed raises UnexpectedStatusException. An interrupt ends the waiting, not the tuning job.
        """
        progress = Progress(self.describe())
        try:
            for trial in self.ended():
                if logs:
                    sys.stdout.write(f"{progress.line(trial)}\n")
                    sys.stdout.flush()
        except KeyboardInterrupt:
            sys.stdout.write(f"\n{detached(self._name)}\n")
            raise
        description = self.describe()
        require_no_failure(description)
        if logs:
            sys.stdout.write(f"{summary(description)}\n")

    def ended(
        self, *, pause: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> Iterator[dict[str, Any]]:
        """The summary of each training job once it has ended, until the tuning job itself has.

        A yard that restarts is waited for; Unavailable when it stays away for over a minute.
        """
        command = f"trainyard tune watch {self._name}"
        patience = Patience(f'Tuning job "{self._name}"', command, pause=pause, clock=clock)
        told: set[str] = set()
        while True:
            try:
                look = self._look(told)
            except Unavailable as error:
                patience.wait(error)
                continue
            for trial in look.ended:
                told.add(trial["TrainingJobName"])
                yield trial
            patience.renew()  # who is told may take long, and that is no absence of the yard
            if look.status in FINAL:
                return
            pause(LOOK_S)

    def _pages(self, *, latest_first: bool = False) -> Iterator[dict[str, Any]]:
        """The summaries as the yard lists them, asked for page by page."""
        asked: dict[str, Any] = {"SortOrder": "Descending" if latest_first else "Ascending"}
        while True:
            page = self._api.call(
                "sagemaker",
                "ListTrainingJobsForHyperParameterTuningJob",
                HyperParameterTuningJobName=self._name,
                SortBy="CreationTime",
                MaxResults=_PAGE,
                **asked,
            )
            yield from page["TrainingJobSummaries"]
            if not page.get("NextToken"):
                return
            asked["NextToken"] = page["NextToken"]

    def _look(self, told: set[str]) -> "_Look":
        """Unavailable when the yard cannot answer now."""
        try:
            description = self.describe()
            return _Look(description["HyperParameterTuningJobStatus"], self._ended_since(told, description))
        except CallFailed as error:
            if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            raise Unavailable(error.message) from error

    def _ended_since(self, told: set[str], description: Description) -> list[dict[str, Any]]:
        """Those that have ended and are not told of, the first to end first; asks no more pages than needed."""
        missing = ended_count(description) - len(told)
        found: list[dict[str, Any]] = []
        for trial in self._pages(latest_first=True) if missing > 0 else ():
            if trial["TrainingJobStatus"] in FINAL and trial["TrainingJobName"] not in told:
                found.append(trial)
            if len(found) >= missing:
                break
        return sorted(found, key=lambda trial: trial.get("TrainingEndTime") or trial["CreationTime"])


@dataclass(frozen=True, slots=True)
class _Look:
    status: str
    ended: list[dict[str, Any]]


def ended_count(description: Description) -> int:
    """How many of its training jobs have ended."""
    counters: Mapping[str, int] = description["TrainingJobStatusCounters"]
    return sum(count for status, count in counters.items() if status != "InProgress")


def require_no_failure(description: Description) -> None:
    """Raise when the tuning job of a description has failed."""
    status = description["HyperParameterTuningJobStatus"]
    if status == "Failed":
        raise UnexpectedStatusException(summary(description), ("Completed", "Stopped"), status)


def detached(name: str) -> str:
    """What to do with a tuning job that nobody waits for any more."""
    return (
        f'Tuning job "{name}" goes on: `trainyard tune watch {name}` to come back, `trainyard tune stop {name}` to '
        "end it."
    )
