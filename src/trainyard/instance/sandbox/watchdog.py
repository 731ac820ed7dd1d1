"""Watches the memory of a process tree that no control group can limit."""

import time

from trainyard.instance.sandbox.processes import descendants, proportional_memory, resident_memory

_INTERVAL_S = 0.1
# The share of one core that watching may cost, however many threads the tree has.
_MAX_CORE_SHARE = 0.02


class MemoryWatchdog:
    """Measures the processes below `root` at intervals, and remembers whether they ever used too much."""

    def __init__(self, root: int, limit_bytes: int) -> None:
        self.has_tripped = False
        self._root = root
        self._limit = limit_bytes
        self._next_check = 0.0

    def pause_s(self, now: float) -> float:
        return max(self._next_check - now, 0.0)

    def check(self, now: float) -> bool:
        """Return whether the limit was exceeded; False until the next measurement is due."""
        if now < self._next_check:
            return False
        self.has_tripped = self.has_tripped or exceeds_memory(self._root, self._limit)
        cost = time.monotonic() - now
        self._next_check = now + max(_INTERVAL_S, cost / _MAX_CORE_SHARE)
        return self.has_tripped


def exceeds_memory(root: int, limit_bytes: int) -> bool:
    """Return whether the processes below `root` use more than the limit.

    Forked workers share the pages of their parent, so the plain sum may be far too high. It only raises the alarm: if
    it exceeds the limit, the exact figure is taken, which costs a walk over every mapping.
    """
    pids = descendants(root)
    if sum(resident_memory(pid) for pid in pids) <= limit_bytes:
        return False
    return sum(proportional_memory(pid) for pid in pids) > limit_bytes
