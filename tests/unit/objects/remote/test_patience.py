"""Trying again, by a clock that does not run."""

import pytest

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.remote.faults import Moved, Passing
from trainyard.objects.remote.patience import Patience, persist

WHERE = Location(BucketRef("111122223333", "data"), "a/key")


class Faulty:
    """Fails so many times, then answers."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.asked <= self.times:
            raise Passing("answered 503 SlowDown")
        return "answer"


def test_what_passes_is_tried_again_with_pauses_that_grow() -> None:
    pauses: list[float] = []
    patience = Patience(tries=6, first_pause_s=1, longest_pause_s=4)
    assert persist(Faulty(5), where=WHERE, patience=patience, pause=pauses.append) == "answer"
    longest = [1, 2, 4, 4, 4]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True)), pauses


def test_two_who_fail_together_do_not_come_back_together() -> None:
    assert len({Patience().pause_s(3) for _ in range(20)}) > 10


def test_after_the_last_try_it_is_told_what_was_asked_for_and_how_often() -> None:
    request = Faulty(100)
    with pytest.raises(Unavailable) as failed:
        persist(request, where=WHERE, patience=Patience(tries=3), pause=lambda _: None)
    assert request.asked == 3
    assert failed.value.message.startswith(
        "s3://data/a/key could not be read: the remote store answered 503 SlowDown. It was tried 3 times in "
    )


def test_what_does_not_pass_is_not_tried_again() -> None:
    asked = []

    def moved() -> None:
        asked.append(1)
        raise Moved("path")

    with pytest.raises(Moved):
        persist(moved, where=WHERE, patience=Patience(), pause=lambda _: None)
    assert len(asked) == 1


def test_who_waits_may_give_up() -> None:
    def pause(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        persist(Faulty(1), where=WHERE, patience=Patience(), pause=pause)
