"""Watches the memory of a tree where no control group can limit it."""

import time

from trainyard.instance.sandbox.processes import descendants, proportional_memory, resident_memory

_INTERVAL_S = 0.1
_LARGEST_SHARE = 0.02  # of one core, however many threads the tree has


class Watchdog:
    """Looks at the processes below `root` now and then, and remembers whether they ever used too much."""

    def __init__(self, root: int, limit_bytes: int) -> None:
        self.has_barked = False
        self._root = root
        self._limit = limit_bytes
        self._next_look = 0.0

    def pause_s(self, now: float) -> float:
        return max(self._next_look - now, 0.0)

    def look(self, now: float) -> bool:
        """Whether the limit is passed. Before the next look is due, the answer is no."""
        if now < self._next_look:
            return False
        self.has_barked = self.has_barked or is_over(self._root, self._limit)
        cost = time.monotonic() - now
        self._next_look = now + max(_INTERVAL_S, cost / _LARGEST_SHARE)
        return self.has_barked


def is_over(root: int, limit_bytes: int) -> bool:
    """Whether the processes below `root` use more than the limit.

    Forked workers share the pages of their parent, so the plain sum may be far too high. It is only the alarm: the
    exact figure, which costs a walk over every mapping, is taken when the sum is over the limit.
    """
    pids = descendants(root)
    if sum(resident_memory(pid) for pid in pids) <= limit_bytes:
        return False
    return sum(proportional_memory(pid) for pid in pids) > limit_bytes
