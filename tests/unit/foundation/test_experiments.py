import math
import random
import statistics

import pytest

from tests.unit.foundation.sample_jobs import seconds
from trainyard.foundation.experiments import MetricStatistics, merge_statistics, summarize


def test_statistics_of_parts_merge_into_those_of_the_whole() -> None:
    chance = random.Random(1)
    values = [chance.gauss(1000, 0.5) for _ in range(300)]
    timed = [(value, seconds(place)) for place, value in enumerate(values)]
    parts = [summarize(timed[first : first + 7]) for first in range(0, 300, 7)]
    whole = parts[0]
    for part in parts[1:]:
        assert whole is not None
        assert part is not None
        whole = merge_statistics(whole, part)
    assert whole is not None
    assert (whole.last, whole.at, whole.count) == (values[-1], seconds(299), 300)
    assert (whole.minimum, whole.maximum) == (min(values), max(values))
    assert whole.mean == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert whole.deviation == pytest.approx(statistics.stdev(values), rel=1e-9)


def test_values_that_are_not_finite_count_but_change_no_other_statistic() -> None:
    found = summarize([(1.0, seconds(0)), (math.inf, seconds(1)), (3.0, seconds(2)), (math.nan, seconds(3))])
    assert found is not None
    assert (found.count, found.minimum, found.maximum, found.mean) == (4, 1.0, 3.0, 2.0)
    assert math.isnan(found.last)
    only = summarize([(math.nan, seconds(5))])
    assert only is not None
    assert only.minimum is None
    assert only.deviation is None
    merged = merge_statistics(found, only)
    assert (merged.count, merged.mean, merged.deviation) == (5, 2.0, found.deviation)
    later = merge_statistics(only, MetricStatistics(2.0, seconds(6), 1, 1, 2.0, 2.0, 2.0, 0.0))
    assert (later.count, later.last, later.mean, later.deviation) == (2, 2.0, 2.0, 0.0)


def test_nothing_has_no_statistics() -> None:
    assert summarize([]) is None
