"""Watermarks: seek by time in files whose records are mostly, but not always, in order of time.

Each record has, besides its own time, a watermark of all records up to it: the latest time (`peak`), and the largest
distance of a record behind the peak at its moment (`lag`). Neither ever decreases, so a binary search over them is
exact, however the times jump:

- before the first record whose peak reaches t, no record has a time of t or later;
- from the first record whose peak reaches t plus the lag of the last record on, none has a time before t.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Watermark:
    peak: int
    lag: int

    def with_time(self, time: int) -> "Watermark":
        """Return the watermark after one more record."""
        if time >= self.peak:
            return Watermark(time, self.lag)
        return Watermark(self.peak, max(self.lag, self.peak - time))


LOWEST = Watermark(peak=-(2**63), lag=0)


def find_first_reaching(time: int, count: int, *, peak_of: Callable[[int], int]) -> int:
    """Return the number of the first of `count` records whose peak is `time` or later; `count` if there is none."""
    return bisect_left(range(count), time, key=peak_of)
