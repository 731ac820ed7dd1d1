"""Run the jobs of a drill: one without an interruption, one with an interruption in the middle."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.resume_drill.jobs import DrillJob
from trainyard._sdk.storage.transfers import list_keys
from trainyard._sdk.training.cloudwatch import LogLine
from trainyard._sdk.training.interruptions import interrupt
from trainyard._sdk.training.outcomes import Details
from trainyard._sdk.training.stream import FINAL, Description, follow_job
from trainyard.wire.client import CallFailed

POLL_S = 0.1
# After this share of a run, the interruption no longer waits for a checkpoint.
FORCED_SHARE = 0.7
# With fewer lines than this, the time of a run shows its progress better than its lines.
MIN_LINES = 5

_AGENT_PREFIX = "[trainyard] "


@dataclass(frozen=True, slots=True)
class DrillRun:
    """An ended job of a drill, with the lines that its script printed in each attempt."""

    description: Description
    details: Details
    lines: Mapping[int, list[str]]
    # How many checkpoint files were on S3 at the interruption.
    checkpoint_files: int = 0

    @property
    def name(self) -> str:
        return str(self.description["TrainingJobName"])

    @property
    def status(self) -> str:
        return str(self.description["TrainingJobStatus"])

    @property
    def interruptions(self) -> int:
        return sum(step["Status"] == "Interrupted" for step in self.description["SecondaryStatusTransitions"])

    @property
    def lines_before(self) -> list[str]:
        """The lines of all attempts but the last."""
        return [line for number, lines in sorted(self.lines.items()) if number != self._last for line in lines]

    @property
    def lines_last(self) -> list[str]:
        """The lines of the last attempt."""
        return self.lines.get(self._last, [])

    @property
    def trained(self) -> timedelta:
        """The training time of all attempts."""
        return timedelta(seconds=sum(map(_training_seconds, self.details["Attempts"])))

    @property
    def trained_last(self) -> timedelta:
        """The training time of the last attempt."""
        return timedelta(seconds=_training_seconds(self.details["Attempts"][-1]))

    @property
    def metrics(self) -> Mapping[str, float]:
        """The last value of each metric."""
        return {each["MetricName"]: each["Value"] for each in self.description.get("FinalMetricDataList", ())}

    @property
    def _last(self) -> int:
        return max(int(attempt["Number"]) for attempt in self.details["Attempts"])


@dataclass(frozen=True, slots=True)
class InterruptionPoint:
    """When to interrupt: at a share of the lines of a whole run or, if it printed few, of its training time."""

    share: float
    lines: int
    trained_s: float

    @classmethod
    def in_run(cls, whole: DrillRun, share: float) -> "InterruptionPoint":
        """Return the point at a share of a run."""
        return cls(share, len(whole.lines_last), whole.trained_last.total_seconds())

    def is_reached(self, *, lines: int, trained_s: float, has_checkpoint: bool) -> bool:
        """Return whether to interrupt now: only with a checkpoint to resume from, unless the run is nearly over."""
        part = lines / self.lines if self.lines >= MIN_LINES else trained_s / max(self.trained_s, POLL_S)
        return part >= FORCED_SHARE or (part >= self.share and has_checkpoint)


def run_whole(api: Api, request: Mapping[str, Any]) -> DrillRun:
    """Run a job until it has ended."""
    with _start_job(api, request) as watcher:
        watcher.wait()
        return _collect_run(api, watcher)


def run_interrupted(api: Api, request: Mapping[str, Any], job: DrillJob, *, point: InterruptionPoint) -> DrillRun:
    """Run a job until it has ended, and interrupt it once at a point, unless it ends before."""
    with _start_job(api, request) as watcher:
        if _wait_for_point(api, watcher, job, point=point):
            interrupt(api, watcher.name)
        checkpoint_files = _count_checkpoints(api, watcher, job)
        watcher.wait()
        return _collect_run(api, watcher, checkpoint_files=checkpoint_files)


@dataclass
class _JobWatcher:
    """Follows a job in its own thread and collects its lines."""

    api: Api
    name: str
    lines: dict[int, list[str]] = field(default_factory=dict)
    error: Exception | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._follow, name=f"drill {self.name}", daemon=True)
        self.thread.start()

    @property
    def is_over(self) -> bool:
        return not self.thread.is_alive()

    def wait(self) -> None:
        while not self.is_over:
            # With a timeout, so that Ctrl-C can interrupt it.
            self.thread.join(1.0)
        if self.error is not None:
            raise self.error

    def _follow(self) -> None:
        try:
            for event in follow_job(self.api, self.name):
                if isinstance(event, LogLine) and not event.text.startswith(_AGENT_PREFIX):
                    self.lines.setdefault(event.attempt, []).append(event.text)
        # The edge of the thread; `wait` raises the error.
        except Exception as error:
            self.error = error


@contextmanager
def _start_job(api: Api, request: Mapping[str, Any]) -> Iterator[_JobWatcher]:
    """Start a job and watch it. If the block fails, stop the job."""
    api.call("sagemaker", "CreateTrainingJob", **request)
    watcher = _JobWatcher(api, request["TrainingJobName"])
    try:
        yield watcher
    except BaseException:
        if not watcher.is_over:
            # The job may have ended in the meantime.
            with suppress(CallFailed):
                api.call("sagemaker", "StopTrainingJob", TrainingJobName=watcher.name)
        raise


def _wait_for_point(api: Api, watcher: _JobWatcher, job: DrillJob, *, point: InterruptionPoint) -> bool:
    """Return whether the job reached the point before it ended or someone else interrupted it."""
    has_checkpoint, clock = False, _TrainingClock()
    while not watcher.is_over:
        description = _describe(api, watcher.name)
        if _was_interrupted(description):
            return False
        trained_s = clock.elapsed_s(description)
        has_checkpoint = has_checkpoint or _has_checkpoint(api, job)
        lines = len(watcher.lines.get(1, ()))
        is_training = description["SecondaryStatus"] == "Training"
        if is_training and point.is_reached(lines=lines, trained_s=trained_s, has_checkpoint=has_checkpoint):
            return True
        time.sleep(POLL_S)
    return False


class _TrainingClock:
    """Measures how long a job has been training, by the clock of this machine: that of the yard may differ."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since: float | None = None

    def elapsed_s(self, description: Description) -> float:
        if description["SecondaryStatus"] == "Training" and self._since is None:
            self._since = self._monotonic()
        return 0.0 if self._since is None else self._monotonic() - self._since


def _count_checkpoints(api: Api, watcher: _JobWatcher, job: DrillJob) -> int:
    """Return how many checkpoint files a job has on S3 once it is interrupted or, if it never is, at its end."""
    while not watcher.is_over:
        description = _describe(api, watcher.name)
        if _was_interrupted(description) or description["TrainingJobStatus"] in FINAL:
            break
        time.sleep(POLL_S / 2)
    return sum(1 for _ in list_keys(api, job.bucket, job.checkpoints))


def _has_checkpoint(api: Api, job: DrillJob) -> bool:
    page = api.call("s3", "ListObjectsV2", Bucket=job.bucket, Prefix=job.checkpoints, MaxKeys=1)
    return bool(page.get("Contents"))


def _collect_run(api: Api, watcher: _JobWatcher, *, checkpoint_files: int = 0) -> DrillRun:
    details = api.call("trainyard", "DescribeJob", TrainingJobName=watcher.name)
    return DrillRun(_describe(api, watcher.name), details, watcher.lines, checkpoint_files)


def _was_interrupted(description: Description) -> bool:
    return any(step["Status"] == "Interrupted" for step in description["SecondaryStatusTransitions"])


def _training_seconds(attempt: Mapping[str, Any]) -> float:
    return float(attempt.get("TrainingTimeInSeconds") or 0.0)


def _describe(api: Api, name: str) -> Description:
    return api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=name)
