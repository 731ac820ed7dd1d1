"""Items run in parallel and end when they should."""

import threading

import pytest

from trainyard.objects.remote.parallel import Pause, RunAbandoned, run_all, run_watched


class Counted:
    """Counts concurrent calls; each waits until the limit is reached."""

    def __init__(self, wanted: int) -> None:
        self.most = 0
        self.done: list[int] = []
        self._meeting = threading.Barrier(wanted)
        self._lock = threading.Lock()
        self._now = 0

    def __call__(self, thing: int, _: Pause) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self._meeting.wait(timeout=10)
        with self._lock:
            self._now -= 1
            self.done.append(thing)


def nothing() -> None:
    """Never end the run."""


def test_all_items_run_with_the_given_concurrency() -> None:
    counted = Counted(4)
    run_all(counted, range(16), check=nothing, threads=4)
    assert (sorted(counted.done), counted.most) == (list(range(16)), 4)


def test_nothing_to_do_is_done_at_once() -> None:
    run_all(lambda _, __: None, (), check=nothing)


def test_the_first_error_ends_it_and_is_raised() -> None:
    done: list[int] = []

    def do(thing: int, _: Pause) -> None:
        if thing == 3:
            raise LookupError("three")
        done.append(thing)

    with pytest.raises(LookupError, match="three"):
        run_all(do, range(10_000), check=nothing, threads=1)
    assert done == [0, 1, 2]


def test_an_error_of_the_things_themselves_is_raised_too() -> None:
    def things() -> "list[int]":
        return [1 // number for number in (1, 0)]

    with pytest.raises(ZeroDivisionError):
        run_all(lambda _, __: None, (each for _ in (0,) for each in things()), check=nothing)


def test_who_checks_ends_it_while_the_others_wait() -> None:
    waiting, gave_up = threading.Event(), threading.Event()

    def do(_: int, pause: Pause) -> None:
        waiting.set()
        try:
            pause(60)
        except RunAbandoned:
            gave_up.set()
            raise

    def check() -> None:
        if waiting.is_set():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(do, [1], check=check, threads=1)
    assert gave_up.wait(10)


def test_a_watched_call_returns_its_result_or_raises_its_error() -> None:
    assert run_watched(lambda: 7, check=nothing) == 7
    with pytest.raises(ZeroDivisionError):
        run_watched(lambda: 1 // 0, check=nothing)


def test_one_who_is_attended_is_left_alone_when_it_shall_end() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return may_end.wait(60)

    def check() -> None:
        if begun.is_set():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_watched(wait, check=check)
    may_end.set()
