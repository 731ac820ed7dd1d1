"""What follows from eight statistics: the reductions of the elements, and those of a whole from its parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import ABSENT, Statistic
from trainyard.formats.tensors.statistics.reductions import STATISTICS, derive, join, known_reductions, statistics_of

numbers = st.floats(-1e6, 1e6, width=32)
values = arrays.arrays(np.float32, st.integers(1, 30), elements=numbers)

ABSENT_ROW = np.array([0, 0, 0, 0, 0, 0, ABSENT, 0], np.float32)


def wanted(array: NDArray[np.float32]) -> dict[str, float]:
    wide = array.astype(np.float64)
    told = {
        "min": wide.min(),
        "max": wide.max(),
        "mean": wide.mean(),
        "std": wide.std(),
        "variance": wide.var(),
        "sum": wide.sum(),
        "l1": np.abs(wide).sum(),
        "l2": np.sqrt((wide**2).sum()),
        "zeros": np.count_nonzero(wide == 0),
        "zero_share": np.mean(wide == 0),
        "nans": 0,
        "infs": 0,
        "mean_abs": np.abs(wide).mean(),
    }
    magnitudes = np.abs(wide)
    return told | {
        "abs_mean": magnitudes.mean(),
        "abs_max": magnitudes.max(),
        "abs_sum": magnitudes.sum(),
        "abs_std": magnitudes.std(),
        "abs_variance": magnitudes.var(),
        "abs_l1": told["l1"],
        "abs_l2": told["l2"],
    }


@given(values)
def test_every_statistic_is_that_of_the_elements(array: NDArray[np.float32]) -> None:
    told, expected = statistics_of(array), wanted(array)
    assert set(expected) == set(STATISTICS)
    largest = float(np.abs(array).max())
    for word, value in expected.items():
        # Of numbers that nearly cancel out, 32 bits keep as much as of the largest of them.
        scale = largest**2 if "variance" in word else largest * (array.size if word in ("sum", "abs_sum", "l1") else 1)
        slack = 1e-3 if "std" in word or "variance" in word else 1e-6
        assert float(derive(told, word, size=array.size)) == pytest.approx(value, rel=1e-5, abs=slack * scale + 1e-30)


@given(values, st.integers(0, 30))
def test_parts_are_joined_to_the_statistics_of_the_whole(array: NDArray[np.float32], cut: int) -> None:
    parts = [part for part in (array[: cut % len(array)], array[cut % len(array) :]) if len(part)]
    joined = join([statistics_of(part) for part in parts], [len(part) for part in parts])
    whole = statistics_of(array)
    assert (
        joined[[Statistic.MIN, Statistic.MAX, Statistic.ZEROS]].tolist()
        == whole[[Statistic.MIN, Statistic.MAX, Statistic.ZEROS]].tolist()
    )
    for column in (Statistic.MEAN, Statistic.STD, Statistic.MEAN_ABS):
        assert joined[column] == pytest.approx(whole[column], rel=1e-4, abs=2e-6 * float(np.abs(array).max()) + 1e-30)


def test_a_nan_in_a_part_is_in_the_whole_and_a_part_that_was_left_out_is_not() -> None:
    parts = [statistics_of(np.array([1.0, np.nan])), statistics_of(np.array([5.0, np.inf]))]
    joined = join([*parts, ABSENT_ROW], [2, 2, 7])
    assert joined[[Statistic.NANS, Statistic.INFS]].tolist() == [1, 1]
    assert np.isnan(joined[[Statistic.MEAN, Statistic.MIN, Statistic.MAX]]).all()
    assert join([parts[1], ABSENT_ROW], [2, 7])[Statistic.MIN] == 5
    assert join([ABSENT_ROW, ABSENT_ROW], [2, 7]).tolist() == ABSENT_ROW.tolist()


def test_a_tensor_without_elements_has_no_share_of_zeros() -> None:
    assert np.isnan(derive(np.zeros(8, np.float32), "zero_share", size=0))


def test_a_tensor_that_was_left_out_has_no_reductions() -> None:
    assert known_reductions(ABSENT_ROW, size=4) == {}
    assert np.isnan(derive(ABSENT_ROW, "mean", size=4))
    assert ("min", True) not in known_reductions(statistics_of(np.ones(3)), size=3)
