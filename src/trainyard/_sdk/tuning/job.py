"""A handle on one tuning job of a yard."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.training.stream import FINAL, Description, ReconnectBackoff
from trainyard._sdk.tuning.text import TuningProgress, aim_of, summary
from trainyard.exceptions import UnexpectedStatusException
from trainyard.foundation.errors import Unavailable
from trainyard.wire.client import CallFailed

POLL_S = 0.5

_PAGE_SIZE = 100
# In a notebook.
_SHOWN_TRIALS = 10


class TuningJobHandle:
    """A tuning job by name. Creating a handle does not call the yard."""

    def __init__(self, api: Api, name: str) -> None:
        self._api, self._name = api, name

    def __repr__(self) -> str:
        return f"<tuning job {self._name}>"

    def _repr_html_(self) -> str:
        from trainyard._sdk.tuning.notebook import study_html

        return study_html(self.describe(), self.best_trials(_SHOWN_TRIALS))

    def _ipython_display_(self) -> None:
        from trainyard._sdk.tuning.notebook import view_study
        from trainyard.foundation.notebook_live import show_live

        show_live(lambda: view_study(self, max_trials=_SHOWN_TRIALS))

    @property
    def name(self) -> str:
        """The name of the tuning job."""
        return self._name

    @property
    def job_name(self) -> str:
        """The name of the tuning job, as the sagemaker SDK spells it."""
        return self._name

    def describe(self) -> dict[str, Any]:
        """Return the DescribeHyperParameterTuningJob response."""
        return self._api.call("sagemaker", "DescribeHyperParameterTuningJob", HyperParameterTuningJobName=self._name)

    def details(self) -> dict[str, Any]:
        """Return what only the yard knows: notes, the seed, and why it starts no further training jobs."""
        return self._api.call("trainyard", "DescribeTuningJob", HyperParameterTuningJobName=self._name)

    def trials(self) -> list[dict[str, Any]]:
        """Return the summaries of its training jobs, oldest first."""
        return sorted(self._pages(), key=lambda trial: (trial["CreationTime"], trial["TrainingJobName"]))

    def best_trials(self, count: int) -> list[dict[str, Any]]:
        """Return the summaries of the best training jobs, the best first."""
        page = self._api.call(
            "sagemaker",
            "ListTrainingJobsForHyperParameterTuningJob",
            HyperParameterTuningJobName=self._name,
            SortBy="FinalObjectiveMetricValue",
            SortOrder="Descending" if aim_of(self.describe()).is_maximized else "Ascending",
            MaxResults=count,
        )
        trials: list[dict[str, Any]] = page["TrainingJobSummaries"]
        return trials

    def stop(self) -> None:
        """Stop the tuning job and its running training jobs. An ended tuning job stays unchanged."""
        try:
            self._api.call("sagemaker", "StopHyperParameterTuningJob", HyperParameterTuningJobName=self._name)
        except CallFailed:
            if self.describe()["HyperParameterTuningJobStatus"] not in FINAL:
                raise

    def wait(self, logs: bool = True) -> None:
        """Wait until the tuning job has ended; with `logs`, print a line for every training job that ends.

        Raises UnexpectedStatusException if the tuning job has failed. Ctrl-C ends the wait, not the tuning job.
        """
        progress = TuningProgress(self.describe())
        try:
            for trial in self.ended_trials():
                if logs:
                    sys.stdout.write(f"{progress.line(trial)}\n")
                    sys.stdout.flush()
        except KeyboardInterrupt:
            sys.stdout.write(f"\n{detached_message(self._name)}\n")
            raise
        description = self.describe()
        require_no_failure(description)
        if logs:
            sys.stdout.write(f"{summary(description)}\n")

    def ended_trials(
        self, *, pause: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> Iterator[dict[str, Any]]:
        """Yield the summary of each training job once it has ended, until the tuning job itself has ended.

        Waits for a yard that restarts. Raises Unavailable if it does not answer for over a minute.
        """
        command = f"trainyard tune watch {self._name}"
        backoff = ReconnectBackoff(f'Tuning job "{self._name}"', command, pause=pause, clock=clock)
        seen: set[str] = set()
        while True:
            try:
                poll = self._poll(seen)
            except Unavailable as error:
                backoff.wait(error)
                continue
            for trial in poll.ended:
                seen.add(trial["TrainingJobName"])
                yield trial
            # The caller may have been slow; that does not count as an absence of the yard.
            backoff.reset()
            if poll.status in FINAL:
                return
            pause(POLL_S)

    def _pages(self, *, latest_first: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the summaries in the order of creation, page by page."""
        request: dict[str, Any] = {"SortOrder": "Descending" if latest_first else "Ascending"}
        while True:
            page = self._api.call(
                "sagemaker",
                "ListTrainingJobsForHyperParameterTuningJob",
                HyperParameterTuningJobName=self._name,
                SortBy="CreationTime",
                MaxResults=_PAGE_SIZE,
                **request,
            )
            yield from page["TrainingJobSummaries"]
            if not page.get("NextToken"):
                return
            request["NextToken"] = page["NextToken"]

    def _poll(self, seen: set[str]) -> "_TuningPoll":
        """Return the status and the newly ended training jobs. Raises Unavailable if the yard does not answer."""
        try:
            description = self.describe()
            return _TuningPoll(description["HyperParameterTuningJobStatus"], self._newly_ended(seen, description))
        except CallFailed as error:
            if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            raise Unavailable(error.message) from error

    def _newly_ended(self, seen: set[str], description: Description) -> list[dict[str, Any]]:
        """Return the training jobs that have ended and were not seen, in the order of their ends.

        Lists only as many pages as needed.
        """
        missing = ended_count(description) - len(seen)
        found: list[dict[str, Any]] = []
        for trial in self._pages(latest_first=True) if missing > 0 else ():
            if trial["TrainingJobStatus"] in FINAL and trial["TrainingJobName"] not in seen:
                found.append(trial)
            if len(found) >= missing:
                break
        return sorted(found, key=lambda trial: trial.get("TrainingEndTime") or trial["CreationTime"])


@dataclass(frozen=True, slots=True)
class _TuningPoll:
    status: str
    ended: list[dict[str, Any]]


def ended_count(description: Description) -> int:
    """Return how many of its training jobs have ended."""
    counters: Mapping[str, int] = description["TrainingJobStatusCounters"]
    return sum(count for status, count in counters.items() if status != "InProgress")


def require_no_failure(description: Description) -> None:
    """Raise an error if a tuning job has failed."""
    status = description["HyperParameterTuningJobStatus"]
    if status == "Failed":
        raise UnexpectedStatusException(summary(description), ("Completed", "Stopped"), status)


def detached_message(name: str) -> str:
    """Return how to follow or stop a tuning job that nobody waits for any more."""
    return (
        f'Tuning job "{name}" continues: `trainyard tune watch {name}` follows it, `trainyard tune stop {name}` stops '
        "it."
    )
