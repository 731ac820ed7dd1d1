import math

import numpy as np
import pytest

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.axes import CategoricalAxis, Constant, ContinuousAxis, IntegerAxis, axis_of, read_value
from trainyard.insight.tuning.contract import Value
from trainyard.testing.tuning import categorical, continuous, integer


def number(low: float = 0.0, high: float = 10.0) -> ContinuousAxis:
    axis = axis_of(continuous("rate", low, high, Scaling.LINEAR))
    assert isinstance(axis, ContinuousAxis)
    return axis


def whole(low: int = 1, high: int = 4) -> IntegerAxis:
    axis = axis_of(integer("layers", low, high, Scaling.LINEAR))
    assert isinstance(axis, IntegerAxis)
    return axis


def words(*values: str) -> CategoricalAxis:
    axis = axis_of(categorical("optimizer", *values))
    assert isinstance(axis, CategoricalAxis)
    return axis


@pytest.mark.parametrize(
    ("value", "coordinate"), [(0.0, 0.0), (2.5, 0.25), (10, 1.0), (-3.0, 0.0), (1e308, 1.0), (10**400, 1.0)]
)
def test_a_number_lies_where_its_scale_has_it_or_at_the_nearer_bound(value: float, coordinate: float) -> None:
    assert number().coordinate(value) == coordinate


@pytest.mark.parametrize("value", ["2.5", math.nan, math.inf, -math.inf])
def test_what_is_no_number_lies_nowhere(value: Value) -> None:
    assert number().coordinate(value) is None
    assert whole().coordinate(value) is None


def test_coordinates_outside_the_unit_interval_are_those_of_the_bounds() -> None:
    assert [number(2.0, 4.0).value(each) for each in (-1.0, 0.0, 0.5, 1.0, 7.0)] == [2.0, 2.0, 3.0, 4.0, 4.0]
    assert number().snap(np.array([-1.0, 0.5, 7.0])).tolist() == [0.0, 0.5, 1.0]
    assert number().spread(np.array([-1.0, 0.5, 7.0])).tolist() == [0.0, 0.5, 1.0]
    assert [whole().value(each) for each in (-1.0, 7.0)] == [1, 4]
    assert [words("a", "b", "c").value(each) for each in (-1.0, 0.4, 0.6, 1.6, 9.0)] == ["a", "a", "b", "c", "c"]
    assert words("a", "b", "c").snap(np.array([-1.0, 0.4, 1.6, 9.0])).tolist() == [0.0, 0.0, 2.0, 2.0]


def test_a_number_never_leaves_its_bounds_by_rounding() -> None:
    for low in np.random.default_rng(0).uniform(0.0, 0.1, 50):
        high = 3 * float(low)
        axis = axis_of(continuous("rate", float(low), high, Scaling.LOGARITHMIC))
        assert isinstance(axis, ContinuousAxis)
        ends = axis.scale.number(np.array([0.0, 1.0]))
        assert low <= axis.value(0.0) <= axis.value(1.0) <= high
        assert [axis.value(0.0), axis.value(1.0)] == pytest.approx(ends)


def test_every_whole_number_has_a_cell_of_one_size_and_lies_in_its_middle() -> None:
    axis = whole(1, 4)
    assert [axis.coordinate(value) for value in (1, 2, 3, 4)] == pytest.approx([0.125, 0.375, 0.625, 0.875])
    assert [axis.value(unit) for unit in (0.0, 0.24, 0.26, 0.49, 0.51, 0.74, 0.76, 1.0)] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert axis.snap(np.array([0.0, 0.24, 0.26, 1.0, -3.0, 3.0])) == pytest.approx(
        [0.125, 0.125, 0.375, 0.875, 0.125, 0.875]
    )
    assert axis.spread(np.array([0.1, 0.9])) == pytest.approx([0.125, 0.875])
    assert [axis.coordinate(value) for value in (2.4, -5, 99)] == pytest.approx([0.375, 0.125, 0.875])


def test_values_are_counted_from_the_lowest_or_the_first() -> None:
    assert (whole(3, 6).count, [whole(3, 6).nth(index) for index in range(4)]) == (4, [3, 4, 5, 6])
    assert (words("b", "a").count, words("b", "a").nth(0), words("b", "a").nth(1)) == (2, "b", "a")
    assert number().count is None
    with pytest.raises(AssertionError, match="rate is continuous, so it has no value with the index 3"):
        number().nth(3)


def test_a_category_lies_at_its_index_and_an_unknown_one_nowhere() -> None:
    axis = words("sgd", "adam", "sgd", "lamb")
    assert axis.values == ("sgd", "adam", "lamb")
    assert [axis.coordinate(value) for value in ("sgd", "adam", "lamb", "none", 1)] == [0.0, 1.0, 2.0, None, None]
    assert axis.spread(np.array([0.0, 0.33, 0.34, 0.99, 1.0])).tolist() == [0.0, 0.0, 1.0, 2.0, 2.0]


def test_only_categories_are_categorical() -> None:
    assert [axis.is_categorical for axis in (number(), whole(), words("a", "b"))] == [False, False, True]


def test_what_has_one_value_is_constant() -> None:
    assert axis_of(continuous("rate", 0.5, 0.5)) == Constant("rate", 0.5)
    assert axis_of(continuous("rate", 0.5, 0.4)) == Constant("rate", 0.5)
    assert axis_of(integer("layers", 3, 3)) == Constant("layers", 3)
    assert axis_of(HyperparameterRange("layers", RangeKind.INTEGER, 2.5, 3.5)) == Constant("layers", 3)
    assert axis_of(categorical("optimizer", "sgd", "sgd")) == Constant("optimizer", "sgd")


def test_bounds_of_whole_numbers_that_are_not_whole_are_moved_inwards() -> None:
    axis = axis_of(HyperparameterRange("layers", RangeKind.INTEGER, 1.5, 4.5, Scaling.LINEAR))
    assert isinstance(axis, IntegerAxis)
    assert (axis.low, axis.high) == (2, 4)


@pytest.mark.parametrize(
    ("constant", "value", "is_admitted"),
    [
        (Constant("rate", 0.5), 0.5, True),
        (Constant("rate", 0.5), 7, True),
        (Constant("rate", 0.5), math.nan, False),
        (Constant("rate", 0.5), "0.5", False),
        (Constant("rate", 0.5), None, False),
        (Constant("optimizer", "sgd"), "sgd", True),
        (Constant("optimizer", "sgd"), "adam", False),
    ],
)
def test_a_constant_admits_itself_and_numbers_that_would_be_clipped_to_it(
    constant: Constant, value: Value | None, is_admitted: bool
) -> None:
    assert constant.admits(value) is is_admitted


@pytest.mark.parametrize(
    ("asked", "text", "value"),
    [
        (continuous("x", 0, 1), "0.25", 0.25),
        (continuous("x", 0, 1), "7", 7.0),
        (continuous("x", 0, 1), "inf", None),
        (continuous("x", 0, 1), "nan", None),
        (continuous("x", 0, 1), "high", None),
        (integer("x", 1, 9), "7", 7),
        (integer("x", 1, 9), "7.6", 8),
        (integer("x", 1, 9), "1e400", None),
        (integer("x", 1, 9), "many", None),
        (integer("x", 1, 9), str(2**70 + 1), 2**70 + 1),
        (categorical("x", "a", "7"), "7", "7"),
        (categorical("x", "a", "7"), "b", None),
    ],
)
def test_a_text_is_read_as_its_range_says(asked: HyperparameterRange, text: str, value: Value | None) -> None:
    found = read_value(asked, text)
    assert found == value
    assert type(found) is type(value)
