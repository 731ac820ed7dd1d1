"""Wait for what another process or thread will do, without guessing how long it takes."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")

_PAUSE_S = 0.01


def eventually(attempt: Callable[[], T], what: str = "", *, within: timedelta = timedelta(seconds=60)) -> T:
    """Call `attempt` until it returns something true, and return that.

    Raises an AssertionError that names `what` if that does not happen in time.
    """
    deadline = time.monotonic() + within.total_seconds()
    while not (answer := attempt()):
        assert time.monotonic() < deadline, (
            f"{what or 'the result'} is still {answer!r} after {within.total_seconds():g} s"
        )
        time.sleep(_PAUSE_S)
    return answer
