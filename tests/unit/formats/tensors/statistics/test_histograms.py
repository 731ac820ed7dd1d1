import numpy as np
import pytest

from trainyard.formats.tensors.statistics import histograms
from trainyard.formats.tensors.statistics.histograms import BINS, HIGHEST, LOWEST, OCTAVES, ZERO


def test_each_power_of_two_begins_a_bin() -> None:
    exponents = np.arange(LOWEST, HIGHEST)
    above = histograms.count(np.exp2(exponents.astype(float)))
    np.testing.assert_array_equal(above[ZERO + 1 :], np.ones(OCTAVES))
    below = histograms.count(-1.999 * np.exp2(exponents.astype(float)))
    np.testing.assert_array_equal(below[:ZERO], np.ones(OCTAVES))


def test_values_beyond_the_bins_are_in_the_last_and_a_nan_in_none() -> None:
    counts = histograms.count(np.array([1e-40, -1e-300, 1e30, np.inf, -np.inf, np.nan, 0.0, -0.0]))
    filled = {int(place): int(counts[place]) for place in np.flatnonzero(counts)}
    assert filled == {ZERO + 1: 1, ZERO - 1: 1, BINS - 1: 2, 0: 1, ZERO: 2}


def test_every_element_is_between_the_edges_of_its_bin() -> None:
    values = np.random.default_rng(1).standard_normal(1000)
    edges = histograms.edges()
    assert (np.diff(edges) > 0).all()
    for value in values:
        (place,) = np.flatnonzero(histograms.count(np.array([value])))
        assert edges[place] <= value <= edges[place + 1]


def test_histograms_of_parts_add_up() -> None:
    values = np.random.default_rng(2).standard_normal(1000)
    parts = np.stack([histograms.count(part) for part in np.split(values, 4)])
    np.testing.assert_array_equal(histograms.join(parts), histograms.count(values))


def test_counts_too_large_for_32_bits_stay_at_the_largest() -> None:
    part = np.full((2, BINS), 2**31 + 5, dtype=np.uint32)
    assert (histograms.join(part) == 2**32 - 1).all()


def test_buckets_begin_at_the_least_element_and_end_at_the_greatest() -> None:
    values = np.array([-0.3, 0.0, 0.6, 0.7, 3.5])
    buckets = histograms.buckets(histograms.count(values), values.min(), values.max())
    assert buckets.limits[0] == pytest.approx(-0.3)
    assert buckets.limits[-1] == pytest.approx(3.5)
    assert (np.diff(buckets.limits) > 0).all()
    assert buckets.counts.sum() == len(values)


def test_buckets_of_a_single_value_hold_it() -> None:
    values = np.full(9, 0.1)
    buckets = histograms.buckets(histograms.count(values), 0.1, 0.1)
    assert buckets.counts.sum() == 9
    assert buckets.limits[-1] == 0.1


def test_buckets_of_nothing_are_empty() -> None:
    buckets = histograms.buckets(histograms.count(np.array([])), np.nan, np.nan)
    assert buckets.counts.sum() == 0
