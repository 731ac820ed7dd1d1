"""Sets of times as disjoint intervals, in whole nanoseconds, so that lengths add up exactly."""

from dataclasses import dataclass

import numpy as np

from trainyard.formats.profiles.traces.contract import Whole


@dataclass(frozen=True, slots=True)
class Intervals:
    """Disjoint intervals in order of time; an end does not belong to its interval."""

    starts: Whole
    ends: Whole

    @property
    def length(self) -> int:
        return int((self.ends - self.starts).sum())

    def length_before(self, times: Whole) -> Whole:
        """Return how much of the set lies before each time."""
        if not len(self.starts):
            return np.zeros(len(times), np.int64)
        sums = np.concatenate([[0], np.cumsum(self.ends - self.starts)])
        place = np.searchsorted(self.starts, times, side="right")
        last = np.maximum(place - 1, 0)
        beyond = np.where(place > 0, np.maximum(self.ends[last] - times, 0), 0)
        before: Whole = sums[place] - beyond
        return before

    def length_within(self, starts: Whole, ends: Whole) -> Whole:
        """Return how much of the set lies in each window."""
        return self.length_before(ends) - self.length_before(starts)

    def joined_with(self, other: "Intervals") -> "Intervals":
        return union_of(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))


def union_of(starts: Whole, ends: Whole) -> Intervals:
    """Return the union of intervals, which may overlap and be in any order. Empty ones do not count."""
    is_full = ends > starts
    starts, ends = starts[is_full], ends[is_full]
    if not len(starts):
        return Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order])
    is_first = np.concatenate([[True], starts[1:] > reached[:-1]])
    is_last = np.concatenate([is_first[1:], [True]])
    return Intervals(starts[is_first], reached[is_last])
