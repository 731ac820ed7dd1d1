"""The speed-up that pairs of runs measure, with its interval of confidence. Standard library only."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Quantiles of Student's t distribution for an interval of 95 %, by degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_T95_MANY = 2.13


@dataclass(frozen=True, slots=True)
class MeasuredSpeedup:
    """How many times as fast a change is: the geometric mean of the pairs, with the limits of a 95 % interval.

    With a single pair the interval is unknown, from 0 to infinity.
    """

    factor: float
    low: float
    high: float
    pairs: int

    @property
    def is_faster(self) -> bool:
        return self.low > 1.0

    @property
    def is_slower(self) -> bool:
        return self.high < 1.0


def measure_speedup(before_s: Sequence[float], after_s: Sequence[float]) -> MeasuredSpeedup:
    """Compare the times of runs that were paired because they ran one after the other.

    Ratios within a pair cancel what slows the whole machine down for some minutes.
    """
    logs = [math.log(before / after) for before, after in zip(before_s, after_s, strict=True)]
    assert logs, "there is at least one pair"
    mean = statistics.fmean(logs)
    if len(logs) == 1:
        return MeasuredSpeedup(math.exp(mean), 0.0, math.inf, 1)
    quantile = _T95[len(logs) - 2] if len(logs) - 2 < len(_T95) else _T95_MANY
    margin = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return MeasuredSpeedup(math.exp(mean), math.exp(mean - margin), math.exp(mean + margin), len(logs))
