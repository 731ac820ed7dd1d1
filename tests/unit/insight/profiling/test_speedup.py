"""Pairs of runs give a factor and an interval that contains it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.insight.profiling.speedup import measure_speedup

SECONDS = st.floats(1e-4, 1e3)


def test_equal_pairs_give_an_exact_factor() -> None:
    measured = measure_speedup([0.3, 0.6, 0.9], [0.1, 0.2, 0.3])
    assert (measured.factor, measured.low, measured.high) == pytest.approx((3, 3, 3))
    assert measured.is_faster
    assert not measured.is_slower


def test_what_slows_both_runs_of_a_pair_down_does_not_count() -> None:
    measured = measure_speedup([0.10, 0.20, 0.40, 0.15], [0.08, 0.16, 0.32, 0.12])
    assert (measured.factor, measured.low, measured.high) == pytest.approx((1.25, 1.25, 1.25))


def test_noise_is_no_gain() -> None:
    measured = measure_speedup([0.10, 0.12, 0.09, 0.11], [0.11, 0.10, 0.10, 0.10])
    assert measured.low < 1 < measured.high
    assert not measured.is_faster
    assert not measured.is_slower


def test_four_pairs_have_the_interval_of_students_t() -> None:
    # The logarithms are 0.1, 0.2, 0.3, 0.4: mean 0.25, standard deviation 0.1291, t(0.975, 3) = 3.182.
    measured = measure_speedup([math.exp(tenth / 10) for tenth in (1, 2, 3, 4)], [1.0] * 4)
    assert math.log(measured.low) == pytest.approx(0.25 - 3.182 * 0.129099 / 2, abs=1e-4)
    assert math.log(measured.high) == pytest.approx(0.25 + 3.182 * 0.129099 / 2, abs=1e-4)


def test_one_pair_says_nothing_about_its_noise() -> None:
    measured = measure_speedup([2.0], [1.0])
    assert (measured.factor, measured.low, measured.high) == (2.0, 0.0, math.inf)
    assert not measured.is_faster


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=2, max_size=20))
def test_the_factor_lies_in_its_interval(pairs: list[tuple[float, float]]) -> None:
    measured = measure_speedup([before for before, _ in pairs], [after for _, after in pairs])
    assert measured.low <= measured.factor * (1 + 1e-9)
    assert measured.factor <= measured.high * (1 + 1e-9)
    assert measured.pairs == len(pairs)
