"""Time that passes only as far as somebody waits for it, so that a day of a yard takes as long as its work does."""

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
    """A clock, and the loop of an asyncio program that goes by it.

    When nothing is left to do before a moment for which the program waits, that moment is there. What it gives to
    threads is done at once in its own, so that everything happens in one order. It must wait for nothing but moments.
    """

    def __init__(self, beginning: datetime = BEGINNING) -> None:
        self._beginning = beginning
        self._passed_s = 0.0

    def __call__(self) -> datetime:
        return self._beginning + timedelta(seconds=self._passed_s)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What the program gives, whose time begins now."""
        loop = _Loop(self)
        loop.set_default_executor(_AtOnce(max_workers=1))
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
        super().__init__(_Skipping(clock))

    def time(self) -> float:
        return self._clock.passed_s


class _Skipping(selectors.BaseSelector):
    """Looks for what is ready, and lets time pass instead of waiting."""

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
        assert timeout is not None, "everybody waits, and for nothing that time could bring"
        self._clock.forward(max(0.0, timeout))
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


class _AtOnce(ThreadPoolExecutor):
    """Does what it is given before it returns."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done
