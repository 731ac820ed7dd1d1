"""Many requests at once, by threads that nobody has to wait for."""

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

THREADS = 24

_LOOK_S = 0.05  # between two calls of `check`

T = TypeVar("T")


class GivenUp(Exception):
    """Nobody waits any more for what is being done."""


Pause = Callable[[float], None]


def do_all(
    do: Callable[[T, Pause], None], things: Iterable[T], *, check: Callable[[], None], threads: int = THREADS
) -> None:
    """Do something with each of many things, a bounded number at a time; the first error ends it all.

    The second argument of `do` waits some seconds, and raises GivenUp when it is over. `things` are taken one by one,
    by any thread. `check` is called every moment by this one, and may raise to end it: what is under way then ends by
    itself, unheeded.
    """
    _Crew(do, things, check=check).work(threads)


def do_attended(do: Callable[[], T], *, check: Callable[[], None]) -> T:
    """What something gives that may take its time; `check` is called every moment and may raise to leave it alone."""
    given: list[T] = []
    do_all(lambda _, __: given.append(do()), [None], check=check, threads=1)
    return given[0]


class _Crew:
    def __init__(self, do: Callable[[T, Pause], None], things: Iterable[T], *, check: Callable[[], None]) -> None:
        self._steps = ((do, thing) for thing in things)
        self._check = check
        self._taking = threading.Lock()
        self._changed = threading.Condition()
        self._is_over = threading.Event()
        self._working = 0
        self._error: BaseException | None = None

    def work(self, threads: int) -> None:
        self._working = threads
        try:
            for number in range(threads):
                # Daemons: one that waits for an answer which nobody wants any more must not keep the process alive.
                threading.Thread(target=self._live, name=f"crew-{number}", daemon=True).start()
            with self._changed:
                while self._working and self._error is None:
                    self._check()
                    self._changed.wait(_LOOK_S)
        finally:
            self._is_over.set()
        if self._error is not None:
            raise self._error

    def _live(self) -> None:
        error: BaseException | None = None
        try:
            while not self._is_over.is_set():
                with self._taking:
                    step = next(self._steps, None)
                if step is None:
                    break
                do, thing = step
                do(thing, self._pause)
        except GivenUp:
            pass
        except BaseException as raised:
            error = raised
        with self._changed:
            self._working -= 1
            self._error = self._error or error
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        if self._is_over.wait(seconds):
            raise GivenUp
