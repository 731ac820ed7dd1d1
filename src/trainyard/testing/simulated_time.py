"""Simulated time that advances only while the program waits, so that a day of a yard takes as long as its work."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class SimulatedTime:
    """A clock, and the event loop of an asyncio program that uses it.

    When nothing else is left to do, time jumps to the next moment that the program waits for. Work for threads runs at
    once in the thread of the loop, so that everything happens in one order. The program must wait for time only.
    """

    def __init__(self, beginning: datetime = BEGINNING) -> None:
        self._beginning = beginning
        self._passed_s = 0.0

    def __call__(self) -> datetime:
        return self._beginning + timedelta(seconds=self._passed_s)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a program on this clock and return its result."""
        loop = _Loop(self)
        loop.set_default_executor(_ImmediateExecutor(max_workers=1))
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(main)

    @property
    def passed_s(self) -> float:
        return self._passed_s

    def forward(self, seconds: float) -> None:
        self._passed_s += seconds


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: SimulatedTime) -> None:
        self._clock = clock
        super().__init__(_TimeSkippingSelector(clock))

    def time(self) -> float:
        return self._clock.passed_s


class _TimeSkippingSelector(selectors.BaseSelector):
    """Advances the clock instead of waiting when nothing is ready."""

    def __init__(self, clock: SimulatedTime) -> None:
        self._clock = clock
        self._inner = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._inner.select(0)
        if ready or timeout == 0:
            return ready
        assert timeout is not None, "the program waits for something other than time"
        self._clock.forward(max(0.0, timeout))
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


class _ImmediateExecutor(ThreadPoolExecutor):
    """Runs each call before `submit` returns."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done
