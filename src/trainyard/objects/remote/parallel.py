"""Runs many requests in parallel, in threads that can be abandoned."""

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

THREADS = 24

_CHECK_INTERVAL_S = 0.05

T = TypeVar("T")


class RunAbandoned(Exception):
    """The caller no longer waits for the result."""


Pause = Callable[[float], None]


def run_all(
    do: Callable[[T, Pause], None], items: Iterable[T], *, check: Callable[[], None], threads: int = THREADS
) -> None:
    """Call `do` for each item in a bounded number of threads; the first error ends all of them.

    The second argument of `do` is a function that waits some seconds and raises RunAbandoned if the run has ended. Any
    thread may take the next item. The calling thread calls `check` every 50 ms; it may raise to end the run. Calls
    in progress then finish in the background, and their results are ignored.
    """
    _WorkerPool(do, items, check=check).run(threads)


def run_watched(do: Callable[[], T], *, check: Callable[[], None]) -> T:
    """Return the result of a slow call. `check` is called every 50 ms and may raise to abandon the call."""
    results: list[T] = []
    run_all(lambda _, __: results.append(do()), [None], check=check, threads=1)
    return results[0]


class _WorkerPool:
    def __init__(self, do: Callable[[T, Pause], None], items: Iterable[T], *, check: Callable[[], None]) -> None:
        self._steps = ((do, item) for item in items)
        self._check = check
        self._steps_lock = threading.Lock()
        self._changed = threading.Condition()
        self._is_ended = threading.Event()
        self._running = 0
        self._error: BaseException | None = None

    def run(self, threads: int) -> None:
        self._running = threads
        try:
            for number in range(threads):
                # Daemon threads: an abandoned one that still waits for a response must not keep the process alive.
                threading.Thread(target=self._work, name=f"transfer-{number}", daemon=True).start()
            with self._changed:
                while self._running and self._error is None:
                    self._check()
                    self._changed.wait(_CHECK_INTERVAL_S)
        finally:
            self._is_ended.set()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        error: BaseException | None = None
        try:
            while not self._is_ended.is_set():
                with self._steps_lock:
                    step = next(self._steps, None)
                if step is None:
                    break
                do, item = step
                do(item, self._pause)
        except RunAbandoned:
            pass
        except BaseException as raised:
            error = raised
        with self._changed:
            self._running -= 1
            self._error = self._error or error
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        if self._is_ended.wait(seconds):
            raise RunAbandoned
