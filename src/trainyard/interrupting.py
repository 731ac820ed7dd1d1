"""Playing the cloud that needs its machine back: interrupts a spot job again and again, as a schedule says."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from trainyard.connection import Api
from trainyard.following import FINAL, Description
from trainyard.foundation.interruptions import InterruptionSchedule
from trainyard.wire.client import CallFailed

LOOK_S = 0.2  # between two looks at a job


@dataclass(frozen=True, slots=True)
class Interruption:
    """An attempt lost its place, so long after it was seen to train."""

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
    """Interrupt a spot job whenever its time has come, until it has ended; each interruption is told when it is done.

    Attempts are counted by how often the job has come to Training.
    """
    seen, since = 0, 0.0
    while (told := _described(api, job_name))["TrainingJobStatus"] not in FINAL:
        attempt = _trainings(told)
        if attempt != seen:
            seen, since = attempt, clock()
        after = schedule.after(attempt) if told["SecondaryStatus"] == "Training" else None
        left_s = LOOK_S if after is None else since + after.total_seconds() - clock()
        if left_s > 0:
            pause(min(LOOK_S, left_s))
        elif interrupt(api, job_name):
            yield Interruption(attempt, timedelta(seconds=clock() - since))
            _await_leaving(api, job_name, attempt, pause=pause)


def interrupt(api: Api, job_name: str) -> bool:
    """Take the place of a spot job away; False when it is just leaving it by itself."""
    try:
        api.call("trainyard", "InterruptJob", TrainingJobName=job_name)
    except CallFailed as error:
        if error.code != "ConflictException":
            raise
        return False
    return True


def _await_leaving(api: Api, job_name: str, attempt: int, *, pause: Callable[[float], None]) -> None:
    """Wait until an attempt no longer trains, which takes the grace of its program at most."""
    while (told := _described(api, job_name))["SecondaryStatus"] == "Training" and _trainings(told) == attempt:
        pause(LOOK_S)


def _trainings(told: Description) -> int:
    return sum(step["Status"] == "Training" for step in told["SecondaryStatusTransitions"])


def _described(api: Api, job_name: str) -> Description:
    return api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=job_name)
