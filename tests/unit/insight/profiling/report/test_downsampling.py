import numpy as np
import pytest

from trainyard.insight.profiling.report.downsampling import average_by_time, follow_levels, weighted_quantiles


def test_many_values_become_means_with_their_extremes() -> None:
    positions = np.arange(1000.0)
    found = average_by_time(positions, positions % 10, start=0, end=1000, points=100)
    assert len(found) == 100
    assert found.means == pytest.approx(4.5)
    assert (found.minima == 0).all()
    assert (found.maxima == 9).all()
    assert found.positions[:2] == pytest.approx([5.0, 15.0])


def test_few_values_stay_as_they_are() -> None:
    found = average_by_time(np.array([0.5, 1.5, 2.5]), np.array([3.0, 1.0, 2.0]), start=0, end=3)
    assert found.means.tolist() == [3.0, 1.0, 2.0]


def test_a_stretch_without_values_is_unknown() -> None:
    found = average_by_time(np.array([0.1, 9.9, 9.8, 9.7]), np.array([1.0, 2.0, 2.0, 2.0]), start=0, end=10)
    assert np.isnan(found.means[1:-1]).all()
    assert np.isnan(found.minima[1:-1]).all()


def test_unknown_values_and_those_outside_do_not_count() -> None:
    positions = np.array([-5.0, 1.0, 2.0, 50.0])
    found = average_by_time(positions, np.array([9.0, np.nan, 4.0, 9.0]), start=0, end=10)
    assert found.means.tolist() == [4.0]


def test_values_in_any_order_have_the_same_result() -> None:
    random = np.random.default_rng(1)
    positions, values = random.random(500) * 10, random.random(500)
    order = np.argsort(positions)
    one = average_by_time(positions, values, start=0, end=10, points=20)
    other = average_by_time(positions[order], values[order], start=0, end=10, points=20)
    assert one.means == pytest.approx(other.means)
    assert one.minima.tolist() == other.minima.tolist()


def test_a_value_that_stands_for_many_weighs_as_much() -> None:
    found = average_by_time(
        np.array([1.0, 2.0]), np.array([1.0, 4.0]), start=0, end=10, weights=np.array([2.0, 1.0]), points=1
    )
    assert found.means.tolist() == [2.0]


@pytest.mark.parametrize(("start", "end"), [(0.0, 0.0), (5.0, 1.0)])
def test_an_empty_stretch_has_no_values(start: float, end: float) -> None:
    assert np.isnan(average_by_time(np.array([0.0]), np.array([1.0]), start=start, end=end).means).all()


def test_quantiles_count_what_values_stand_for() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 98.0, 1.0])
    assert weighted_quantiles(values, weights, (0.5, 0.985, 1.0)) == [1.0, 2.0, 3.0]
    assert np.isnan(weighted_quantiles(np.zeros(0), np.zeros(0), (0.5,))).all()


def test_a_level_stays_until_it_changes_and_keeps_its_peaks() -> None:
    found = follow_levels(np.array([1.0, 4.2, 4.4, 9.0]), np.array([5.0, 80.0, 7.0, 1.0]), start=0, end=10, points=10)
    assert np.isnan(found.means[0]) or found.means[0] == 5
    assert found.means[1:8].tolist() == [5, 5, 5, 7, 7, 7, 7]
    assert found.maxima[4] == 80
    assert found.minima[4] == 5
    assert found.means[-1] == 1


def test_a_level_that_is_never_known_stays_unknown() -> None:
    found = follow_levels(np.zeros(0), np.zeros(0), start=0, end=1, points=4)
    assert np.isnan(found.means).all()
