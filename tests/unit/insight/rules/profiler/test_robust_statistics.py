import math

import numpy as np
import pytest

from trainyard.insight.profiling.contract import Numbers
from trainyard.insight.rules.profiler.robust_statistics import (
    distance,
    mean,
    median_points,
    number_or_none,
    percentile,
    trend,
)


def seconds(count: int) -> Numbers:
    return np.arange(count, dtype=np.float64)


def test_the_slope_of_a_line_is_found_whatever_a_quarter_of_its_points_do() -> None:
    values = 3.0 + 0.5 * seconds(200)
    values[::4] = 1000.0
    found = trend(seconds(200), values)
    assert found.slope_per_s == pytest.approx(0.5, abs=0.05)


def test_a_rise_is_told_from_noise_by_tau_and_z() -> None:
    random = np.random.default_rng(0)
    noise = trend(seconds(500), random.normal(0, 1, 500))
    rise = trend(seconds(500), 0.02 * seconds(500) + random.normal(0, 1, 500))
    assert abs(noise.z) < 3
    assert abs(noise.tau) < 0.15
    assert rise.z > 10
    assert rise.tau > 0.8


def test_a_constant_and_too_few_points_have_no_trend() -> None:
    for values in (np.full(50, 7.0), np.array([1.0, 2.0]), np.full(10, np.nan)):
        found = trend(seconds(len(values)), values)
        assert (found.slope_per_s, found.z) == (0.0, 0.0)


def test_many_points_become_the_medians_of_groups_in_order() -> None:
    times, values = median_points(seconds(1003), seconds(1003), count=100)
    assert len(values) <= 100
    assert np.all(np.diff(values) > 0)
    assert values == pytest.approx(times)


def test_missing_values_do_not_count() -> None:
    values = np.array([1.0, np.nan, 3.0, np.inf])
    assert mean(values) == 2
    assert percentile(values, 50) == 2
    assert math.isnan(mean(np.array([np.nan])))
    assert number_or_none(math.nan) is None
    assert number_or_none(1.5) == 1.5


def test_the_distance_of_distributions_is_awss() -> None:
    same = np.linspace(10, 90, 500)
    assert distance(same, same) == pytest.approx(0)
    assert distance(np.full(10, 5.0), np.full(10, 95.0)) == pytest.approx(math.sqrt(math.log(2)))
    # Half of one distribution, (1/2, 1/2), against all of the other, (1, 0).
    halves = np.array([5.0, 95.0])
    expected = math.sqrt((0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(2.0) + math.log(1 / 0.75)) / 2)
    assert distance(halves, np.array([5.0])) == pytest.approx(expected)
    assert math.isnan(distance(np.array([]), halves))
