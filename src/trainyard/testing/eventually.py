"""Waiting for what another process or thread will do, without guessing how long it takes."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")

_PAUSE_S = 0.01


def eventually(attempt: Callable[[], T], *, within: timedelta = timedelta(seconds=30)) -> T:
    """The first true answer of `attempt`, asked again and again; an AssertionError when there is none in time."""
    deadline = time.monotonic() + within.total_seconds()
    while not (answer := attempt()):
        assert time.monotonic() < deadline, f"still {answer!r} after {within.total_seconds():g} s"
        time.sleep(_PAUSE_S)
    return answer
