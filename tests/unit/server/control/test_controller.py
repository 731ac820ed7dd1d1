import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from datetime import timedelta

import pytest

from trainyard.foundation.errors import Unavailable
from trainyard.server.control import controller as controller_module
from trainyard.server.control.contract import Wake
from trainyard.server.control.controller import Controller, WakeSignal
from trainyard.server.records.contract import ResourceId

Step = Callable[[str, Collection[str]], str | None]


class PlainKind:
    """A kind whose jobs are their own ids: those in `due` can be claimed, and `take` is what a step does."""

    record_kind = "plain"
    poll_interval = timedelta(hours=1)

    def __init__(self, take: Step, *due: str, max_concurrent: int | None = None) -> None:
        self.take, self.due, self.max_concurrent = take, list(due), max_concurrent
        self.lease = timedelta(hours=1)
        self.extended: list[str] = []
        self.released: list[tuple[str, bool]] = []
        self.claim_errors: list[Exception] = []
        self.wake: Wake | None = None
        self.is_closed = False

    def open(self, wake: Wake) -> None:
        self.wake = wake

    def close(self) -> None:
        self.is_closed = True

    def job_id(self, job: str) -> ResourceId:
        return ResourceId(job)

    def claim_due(self) -> Iterator[str]:
        if self.claim_errors:
            raise self.claim_errors.pop()
        while self.due:
            yield self.due.pop(0)

    def step(self, job: str, changed: Collection[str], /) -> str | None:
        return self.take(job, changed)

    def pause_s(self, _job: str, /) -> float:
        return 3600.0

    def extend_lease(self, job: str) -> None:
        self.extended.append(job)

    def release(self, job: str, *, is_held: bool) -> None:
        self.released.append((job, is_held))


def play(kind: PlainKind, scene: Callable[[WakeSignal], Awaitable[None]]) -> None:
    """Run a controller while a scene goes on, and close it after."""

    async def run() -> None:
        signal = WakeSignal()
        controller = Controller(kind, signal)
        running = asyncio.create_task(controller.run())
        try:
            await asyncio.wait_for(scene(signal), 60)
        finally:
            controller.close()
            await asyncio.wait_for(running, 60)

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_all_due_jobs_are_claimed_and_driven_to_their_end() -> None:
    kind = PlainKind(lambda _job, _changed: None, "a", "b", "c")

    async def scene(_: WakeSignal) -> None:
        await until(lambda: len(kind.released) == 3)

    play(kind, scene)
    assert sorted(kind.released) == [("a", False), ("b", False), ("c", False)]
    assert kind.is_closed


def test_no_more_jobs_are_driven_at_once_than_the_kind_allows() -> None:
    running: list[str] = []
    most: list[int] = []

    def take(job: str, _: Collection[str]) -> None:
        running.append(job)
        most.append(len(running))
        running.remove(job)

    kind = PlainKind(take, "a", "b", "c", max_concurrent=1)

    async def scene(_: WakeSignal) -> None:
        await until(lambda: len(kind.released) == 3)

    play(kind, scene)
    assert most == [1, 1, 1]


def test_a_job_whose_lease_is_lost_is_released_as_not_held_and_may_be_claimed_again() -> None:
    steps: list[str] = []

    def take(job: str, _: Collection[str]) -> str | None:
        steps.append(job)
        return None if len(steps) == 1 else job

    kind = PlainKind(take, "a")

    async def scene(signal: WakeSignal) -> None:
        await until(lambda: kind.released == [("a", False)])
        kind.due.append("a")
        signal.send("another")
        await until(lambda: len(steps) == 2)

    play(kind, scene)
    assert kind.released == [("a", False), ("a", True)]


def test_a_job_that_is_claimed_again_waits_for_the_drive_that_lost_it() -> None:
    gate, steps = threading.Event(), list[str]()

    def take(job: str, _: Collection[str]) -> str | None:
        steps.append(job)
        if len(steps) == 1:
            assert gate.wait(60), "the scene opens the gate"
            return None
        return job

    kind = PlainKind(take, "a")

    async def scene(signal: WakeSignal) -> None:
        await until(lambda: len(steps) == 1)
        kind.due.append("a")
        signal.send("another")
        await until(lambda: not kind.due)
        assert len(steps) == 1
        gate.set()
        await until(lambda: len(steps) == 2)

    play(kind, scene)
    assert kind.released == [("a", False), ("a", True)]


def test_a_signal_ends_the_pause_of_the_job_it_names_and_says_what_changed() -> None:
    seen: list[list[str]] = []

    def take(job: str, changed: Collection[str]) -> str:
        seen.append(sorted(changed))
        return job

    kind = PlainKind(take, "a")

    async def scene(signal: WakeSignal) -> None:
        await until(lambda: len(seen) == 1)
        signal.send("a")
        await until(lambda: len(seen) == 2)
        assert kind.wake is not None
        threading.Thread(target=kind.wake, args=("a", "child")).start()
        await until(lambda: len(seen) == 3)
        kind.wake(ResourceId("a"), "")
        await until(lambda: len(seen) == 4)
        kind.wake(ResourceId("unknown"), "")

    play(kind, scene)
    assert seen == [[], ["a"], ["child"], []]


def test_a_signal_for_another_job_makes_the_controller_look_for_due_jobs_at_once() -> None:
    kind = PlainKind(lambda job, _: job)

    async def scene(signal: WakeSignal) -> None:
        await asyncio.sleep(0)
        kind.due.append("a")
        while kind.due:
            signal.send("a")
            await asyncio.sleep(0)

    play(kind, scene)
    assert kind.released == [("a", True)]


@pytest.mark.parametrize("error", [Unavailable("Not now."), RuntimeError("a bug")])
def test_a_step_that_fails_is_taken_again_after_a_pause_and_forgets_no_change(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "RETRY_S", 0.01)
    seen: list[list[str]] = []

    def take(job: str, changed: Collection[str]) -> str | None:
        seen.append(sorted(changed))
        if len(seen) == 2:
            raise error
        return job if len(seen) == 1 else None

    kind = PlainKind(take, "a")

    async def scene(signal: WakeSignal) -> None:
        await until(lambda: len(seen) == 1)
        signal.send("a")
        await until(lambda: len(kind.released) == 1)

    play(kind, scene)
    assert seen == [[], ["a"], ["a"]]


@pytest.mark.parametrize("error", [Unavailable("Not now."), RuntimeError("a bug")])
def test_claiming_is_tried_again_after_an_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "RETRY_S", 0.01)
    kind = PlainKind(lambda _job, _changed: None, "a")
    kind.claim_errors.append(error)
    kind.poll_interval = timedelta()

    async def scene(_: WakeSignal) -> None:
        await until(lambda: kind.released == [("a", False)])

    play(kind, scene)


def test_the_lease_is_extended_while_a_step_takes_long() -> None:
    gate = threading.Event()

    def take(_job: str, _: Collection[str]) -> None:
        assert gate.wait(60), "the scene opens the gate"

    kind = PlainKind(take, "a")
    kind.lease = timedelta(seconds=0.03)

    async def scene(_: WakeSignal) -> None:
        await until(lambda: len(kind.extended) >= 2)
        gate.set()
        await until(lambda: kind.released == [("a", False)])

    play(kind, scene)


def test_closing_lets_a_step_finish_and_gives_every_job_back() -> None:
    gate, started, finished = threading.Event(), threading.Event(), list[str]()

    def take(job: str, _: Collection[str]) -> str:
        started.set()
        assert gate.wait(60), "the timer opens the gate"
        finished.append(job)
        return job

    kind = PlainKind(take, "a")

    async def scene(_: WakeSignal) -> None:
        await asyncio.to_thread(started.wait)
        threading.Timer(0.05, gate.set).start()

    play(kind, scene)
    assert finished == ["a"]
    assert kind.released == [("a", True)]
    assert kind.is_closed


def test_a_signal_from_another_thread_reaches_the_subscriber_on_its_loop() -> None:
    async def listen() -> list[str]:
        signal, received, done = WakeSignal(), list[str](), asyncio.Event()

        def receive(job_id: str) -> None:
            received.append(job_id)
            done.set()

        signal.subscribe(receive)
        threading.Thread(target=signal.send, args=("job-1",)).start()
        await asyncio.wait_for(done.wait(), 30)
        signal.unsubscribe(receive)
        signal.send("job-2")
        await asyncio.sleep(0)
        return received

    assert asyncio.run(listen()) == ["job-1"]


def test_all_subscribers_receive_a_signal() -> None:
    async def listen() -> list[str]:
        signal, received = WakeSignal(), list[str]()
        signal.subscribe(lambda job_id: received.append(f"first {job_id}"))
        signal.subscribe(lambda job_id: received.append(f"second {job_id}"))
        signal.send("job-1")
        while len(received) < 2:
            await asyncio.sleep(0)
        return received

    assert asyncio.run(listen()) == ["first job-1", "second job-1"]


def test_a_signal_without_subscribers_does_nothing() -> None:
    WakeSignal().send("job-1")
