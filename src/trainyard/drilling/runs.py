"""Running the jobs of a drill: one as it is, one with an interruption in its midst."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from trainyard.connection import Api
from trainyard.drilling.definition import Places
from trainyard.following import FINAL, Description, follow
from trainyard.interrupting import interrupt
from trainyard.job_logs import LogLine
from trainyard.outcomes import Details
from trainyard.transfers import keys_below
from trainyard.wire.client import CallFailed

LOOK_S = 0.1  # between two looks at a job that is to be interrupted
LATEST = 0.7  # of a run: the share after which nobody waits for a checkpoint any more
FEWEST_LINES = 5  # by which a program tells how far it is

_OF_THE_AGENT = "[trainyard] "


@dataclass(frozen=True, slots=True)
class Run:
    """A job that has ended. `lines` are what its programs printed, by attempt; `kept` is what it had saved by then."""

    description: Description
    details: Details
    lines: Mapping[int, list[str]]
    kept: int = 0  # checkpoint files that were in S3 when it was interrupted

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
        """What was printed in all attempts but the last."""
        return [line for number, lines in sorted(self.lines.items()) if number != self._last for line in lines]

    @property
    def lines_last(self) -> list[str]:
        """What was printed in the last attempt."""
        return self.lines.get(self._last, [])

    @property
    def trained(self) -> timedelta:
        """In all attempts together."""
        return timedelta(seconds=sum(map(_seconds, self.details["Attempts"])))

    @property
    def trained_last(self) -> timedelta:
        """In its last attempt."""
        return timedelta(seconds=_seconds(self.details["Attempts"][-1]))

    @property
    def metrics(self) -> Mapping[str, float]:
        """The last value of each."""
        return {each["MetricName"]: each["Value"] for each in self.description.get("FinalMetricDataList", ())}

    @property
    def _last(self) -> int:
        return max(int(attempt["Number"]) for attempt in self.details["Attempts"])


@dataclass(frozen=True, slots=True)
class Moment:
    """When to interrupt: at a share of what a whole run printed or, where it printed little, of how long it took."""

    share: float
    lines: int
    trained_s: float

    @classmethod
    def in_run(cls, whole: Run, share: float) -> "Moment":
        return cls(share, len(whole.lines_last), whole.trained_last.total_seconds())

    def has_come(self, *, lines: int, trained_s: float, has_checkpoint: bool) -> bool:
        """Not before there is something to go on from, unless the run would be over."""
        part = lines / self.lines if self.lines >= FEWEST_LINES else trained_s / max(self.trained_s, LOOK_S)
        return part >= LATEST or (part >= self.share and has_checkpoint)


def run_whole(api: Api, request: Mapping[str, Any]) -> Run:
    """Run a job to its end."""
    with _started(api, request) as watch:
        watch.wait()
        return _run(api, watch)


def run_interrupted(api: Api, request: Mapping[str, Any], places: Places, *, moment: Moment) -> Run:
    """Run a job to its end and interrupt it once, when the moment has come; it may be over before."""
    with _started(api, request) as watch:
        if _await_moment(api, watch, places, moment=moment):
            interrupt(api, watch.name)
        kept = _kept(api, watch, places)
        watch.wait()
        return _run(api, watch, kept=kept)


@dataclass
class _Watch:
    """Follows a job in a thread of its own."""

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
            self.thread.join(1.0)  # in pieces, so that Ctrl-C is heard
        if self.error is not None:
            raise self.error

    def _follow(self) -> None:
        try:
            for event in follow(self.api, self.name):
                if isinstance(event, LogLine) and not event.text.startswith(_OF_THE_AGENT):
                    self.lines.setdefault(event.attempt, []).append(event.text)
        except Exception as error:  # the edge of the thread; it is raised by who waits
            self.error = error


@contextmanager
def _started(api: Api, request: Mapping[str, Any]) -> Iterator[_Watch]:
    """A job that runs; who gives up waiting for it stops it."""
    api.call("sagemaker", "CreateTrainingJob", **request)
    watch = _Watch(api, request["TrainingJobName"])
    try:
        yield watch
    except BaseException:
        if not watch.is_over:
            with suppress(CallFailed):  # it may have ended meanwhile
                api.call("sagemaker", "StopTrainingJob", TrainingJobName=watch.name)
        raise


def _await_moment(api: Api, watch: _Watch, places: Places, *, moment: Moment) -> bool:
    """Whether the moment came before the job was over, or others interrupted it."""
    has_checkpoint, clock = False, _TrainingClock()
    while not watch.is_over:
        told = _described(api, watch.name)
        if _was_interrupted(told):
            return False
        trained_s = clock.read(told)
        has_checkpoint = has_checkpoint or _has_checkpoint(api, places)
        lines = len(watch.lines.get(1, ()))
        is_training = told["SecondaryStatus"] == "Training"
        if is_training and moment.has_come(lines=lines, trained_s=trained_s, has_checkpoint=has_checkpoint):
            return True
        time.sleep(LOOK_S)
    return False


class _TrainingClock:
    """How long a job has been seen to train; by the clock of this machine, for that of the yard may be another."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since: float | None = None

    def read(self, told: Description) -> float:
        if told["SecondaryStatus"] == "Training" and self._since is None:
            self._since = self._monotonic()
        return 0.0 if self._since is None else self._monotonic() - self._since


def _kept(api: Api, watch: _Watch, places: Places) -> int:
    """How many files a job has saved when it has gone, before it comes back; or at its end, if it never goes."""
    while not watch.is_over:
        told = _described(api, watch.name)
        if _was_interrupted(told) or told["TrainingJobStatus"] in FINAL:
            break
        time.sleep(LOOK_S / 2)
    return sum(1 for _ in keys_below(api, places.bucket, places.checkpoints))


def _has_checkpoint(api: Api, places: Places) -> bool:
    page = api.call("s3", "ListObjectsV2", Bucket=places.bucket, Prefix=places.checkpoints, MaxKeys=1)
    return bool(page.get("Contents"))


def _run(api: Api, watch: _Watch, *, kept: int = 0) -> Run:
    details = api.call("trainyard", "DescribeJob", TrainingJobName=watch.name)
    return Run(_described(api, watch.name), details, watch.lines, kept)


def _was_interrupted(told: Description) -> bool:
    return any(step["Status"] == "Interrupted" for step in told["SecondaryStatusTransitions"])


def _seconds(attempt: Mapping[str, Any]) -> float:
    return float(attempt.get("TrainingTimeInSeconds") or 0.0)


def _described(api: Api, name: str) -> Description:
    return api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=name)
