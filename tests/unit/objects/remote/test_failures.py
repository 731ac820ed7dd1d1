"""Retries, without waiting."""

import pytest

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.remote.failures import RemoteObjectChanged, RetryPolicy, TransientFailure, retry

WHERE = Location(BucketRef("111122223333", "data"), "a/key")


class Faulty:
    """Fails a number of times, then succeeds."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.asked <= self.times:
            raise TransientFailure("answered 503 SlowDown")
        return "answer"


def test_transient_failures_are_retried_with_growing_pauses() -> None:
    pauses: list[float] = []
    patience = RetryPolicy(tries=6, first_pause_s=1, max_pause_s=4)
    assert retry(Faulty(5), where=WHERE, retry_policy=patience, pause=pauses.append) == "answer"
    longest = [1, 2, 4, 4, 4]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True)), pauses


def test_two_who_fail_together_do_not_come_back_together() -> None:
    assert len({RetryPolicy().pause_s(3) for _ in range(20)}) > 10


def test_the_error_after_the_last_try_names_the_object_and_the_number_of_tries() -> None:
    request = Faulty(100)
    with pytest.raises(Unavailable) as failed:
        retry(request, where=WHERE, retry_policy=RetryPolicy(tries=3), pause=lambda _: None)
    assert request.asked == 3
    assert failed.value.message.startswith(
        "s3://data/a/key could not be read: the remote store answered 503 SlowDown. Tried 3 times in "
    )


def test_permanent_failures_are_not_retried() -> None:
    asked = []

    def moved() -> None:
        asked.append(1)
        raise RemoteObjectChanged("path")

    with pytest.raises(RemoteObjectChanged):
        retry(moved, where=WHERE, retry_policy=RetryPolicy(), pause=lambda _: None)
    assert len(asked) == 1


def test_a_waiting_caller_can_give_up() -> None:
    def pause(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retry(Faulty(1), where=WHERE, retry_policy=RetryPolicy(), pause=pause)
