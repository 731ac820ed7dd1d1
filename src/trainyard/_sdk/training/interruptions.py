"""Interrupt a spot job on a schedule, as a cloud does when it needs its machines back."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from trainyard._sdk.connection import Api
from trainyard._sdk.training.stream import FINAL, Description
from trainyard.foundation.jobs.training.interruptions import InterruptionSchedule
from trainyard.wire.client import CallFailed

POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Interruption:
    """An interrupted attempt and how long it had been training."""

    attempt: int
    trained: timedelta


def interruptions(
    api: Api,
    job_name: str,
    schedule: InterruptionSchedule,
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Interruption]:
    """Interrupt a spot job on a schedule until it has ended, and yield each interruption.

    The number of an attempt is how often the job has reached the status Training.
    """
    seen, since = 0, 0.0
    while (description := _describe(api, job_name))["TrainingJobStatus"] not in FINAL:
        attempt = _count_attempts(description)
        if attempt != seen:
            seen, since = attempt, clock()
        after = schedule.after(attempt) if description["SecondaryStatus"] == "Training" else None
        left_s = POLL_S if after is None else since + after.total_seconds() - clock()
        if left_s > 0:
            pause(min(POLL_S, left_s))
        elif interrupt(api, job_name):
            yield Interruption(attempt, timedelta(seconds=clock() - since))
            _wait_for_end_of_attempt(api, job_name, attempt, pause=pause)


def interrupt(api: Api, job_name: str) -> bool:
    """Interrupt a spot job. Return False if it is not running at the moment."""
    try:
        api.call("trainyard", "InterruptJob", TrainingJobName=job_name)
    except CallFailed as error:
        if error.code != "ConflictException":
            raise
        return False
    return True


def _wait_for_end_of_attempt(api: Api, job_name: str, attempt: int, *, pause: Callable[[float], None]) -> None:
    """Wait until an attempt no longer trains, which takes at most its grace period."""
    while True:
        description = _describe(api, job_name)
        if description["SecondaryStatus"] != "Training" or _count_attempts(description) != attempt:
            return
        pause(POLL_S)


def _count_attempts(description: Description) -> int:
    return sum(step["Status"] == "Training" for step in description["SecondaryStatusTransitions"])


def _describe(api: Api, job_name: str) -> Description:
    return api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=job_name)
