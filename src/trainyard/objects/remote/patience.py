"""Asking a remote S3 again that is overloaded, or to which a connection broke."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import Location
from trainyard.objects.remote.faults import Passing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How often something is tried, and how long at most is waited before the second time, the third, and so on.

    The pauses double. How much of one is waited is left to chance, or all that were refused together would come back
    together.
    """

    tries: int = 8
    first_pause_s: float = 0.2
    longest_pause_s: float = 8.0
    answer_s: float = 20.0  # in which at least a byte has to come

    def pause_s(self, tried: int) -> float:
        """A pause to make when it was tried so many times."""
        longest_s: float = self.first_pause_s * 2 ** (tried - 1)
        return random.uniform(0.5, 1.0) * min(longest_s, self.longest_pause_s)


BRIEF = Patience(tries=6, first_pause_s=0.1, longest_pause_s=2.0, answer_s=60.0)  # while a client waits for an answer


def persist(
    request: Callable[[], T], *, where: Location, patience: Patience, pause: Callable[[float], None] = time.sleep
) -> T:
    """What a request for an object gives, tried again as long as what goes wrong may pass.

    `pause` waits that many seconds, and may raise to give up. Unavailable, which names the object, when it was tried
    often enough.
    """
    begun = time.monotonic()
    tried = 0
    while True:
        try:
            return request()
        except Passing as error:
            tried += 1
            if tried >= patience.tries:
                raise _gave_up(where, error, tried=tried, seconds=time.monotonic() - begun) from error
        pause(patience.pause_s(tried))


def _gave_up(where: Location, error: Passing, *, tried: int, seconds: float) -> Unavailable:
    return Unavailable(
        f"{where} could not be read: the remote store {error.what}. It was tried {tried} times in {seconds:.1f} s. "
        "Look after the S3 that the setting `objects` names, then try again."
    )
