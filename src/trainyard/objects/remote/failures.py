"""Failures of requests to a remote store, and the retries of transient ones."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import Location

T = TypeVar("T")


class RemoteObjectMissing(Unavailable):
    """There is no object at the path. Callers translate it for the user of the store."""

    def __init__(self, path: str) -> None:
        super().__init__(f"The remote store has lost {path}.")


class RemoteObjectChanged(Unavailable):
    """The object at the path is not the version that the request required."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has just changed in the remote store. Try again.")


class TransientFailure(Unavailable):
    """A failure that may be gone in a moment. `what` continues a sentence that starts "the remote store"."""

    def __init__(self, what: str) -> None:
        super().__init__(f"The remote store is unavailable: it {what}. Try again.")
        self.what = what


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is tried, with exponential backoff and jitter between the tries.

    `read_timeout_s` is the time within which at least one byte must arrive.
    """

    tries: int = 8
    first_pause_s: float = 0.2
    max_pause_s: float = 8.0
    read_timeout_s: float = 20.0

    def pause_s(self, tried: int) -> float:
        """Return the pause after this many tries."""
        backoff_s: float = self.first_pause_s * 2 ** (tried - 1)
        return random.uniform(0.5, 1.0) * min(backoff_s, self.max_pause_s)


# For requests during which a client waits for a response.
SHORT_RETRIES = RetryPolicy(tries=6, first_pause_s=0.1, max_pause_s=2.0, read_timeout_s=60.0)


def retry(
    request: Callable[[], T], *, where: Location, retry_policy: RetryPolicy, pause: Callable[[float], None] = time.sleep
) -> T:
    """Return the result of a request for an object; retry it after a transient failure.

    `pause` waits that many seconds, and may raise to give up. Raises Unavailable, which names the object, after the
    last try.
    """
    started_s = time.monotonic()
    tried = 0
    while True:
        try:
            return request()
        except TransientFailure as error:
            tried += 1
            if tried >= retry_policy.tries:
                raise _retries_exhausted(where, error, tried=tried, seconds=time.monotonic() - started_s) from error
        pause(retry_policy.pause_s(tried))


def _retries_exhausted(where: Location, error: TransientFailure, *, tried: int, seconds: float) -> Unavailable:
    return Unavailable(
        f"{where} could not be read: the remote store {error.what}. Tried {tried} times in {seconds:.1f} s. "
        "Check the S3 that the setting `objects` names, then try again."
    )
