import pytest

from trainyard.foundation.tuning import ParameterRange, RangeKind, Scaling
from trainyard.insight.tuning.rulers import Ruler
from trainyard.insight.tuning.space import Space

RANGES = (
    ParameterRange("lr", RangeKind.CONTINUOUS, low=1e-5, high=1e-1, scaling=Scaling.LOGARITHMIC),
    ParameterRange("layers", RangeKind.INTEGER, low=1, high=8),
    ParameterRange("opt", RangeKind.CATEGORICAL, values=('"adam"', '"sgd"')),
)


def test_a_ruler_has_numbers_where_their_scale_has_them_and_categories_apart() -> None:
    rulers = {axis.name: Ruler(axis) for axis in Space(RANGES).axes}
    assert rulers["lr"].place(1e-3) == pytest.approx(0.5)
    assert rulers["opt"].place('"adam"') == 0.25
    assert rulers["opt"].place('"gone"') is None
    assert [mark.label for mark in rulers["opt"].marks] == ["adam", "sgd"]
    assert [mark.label for mark in rulers["lr"].marks] == ["1e-05", "0.0001", "0.001", "0.01", "0.1"]
    assert [mark.label for mark in rulers["layers"].marks][::4] == ["1", "8"]
    assert len(rulers["layers"].places(41)) == 8


def ruler(asked: ParameterRange) -> Ruler:
    (axis,) = Space([asked]).axes
    return Ruler(axis)


def test_places_are_those_of_all_values_where_these_are_few_and_else_evenly_spread() -> None:
    layers = ruler(ParameterRange("layers", RangeKind.INTEGER, low=1, high=4, scaling=Scaling.LINEAR))
    assert layers.places(4) == pytest.approx([0.125, 0.375, 0.625, 0.875])
    assert layers.places(3) == [0.0, 0.5, 1.0]
    rate = ruler(ParameterRange("rate", RangeKind.CONTINUOUS, low=0.0, high=1.0))
    assert rate.places(5) == [0.0, 0.25, 0.5, 0.75, 1.0]
    words = ruler(ParameterRange("word", RangeKind.CATEGORICAL, values=("a", "b", "c", "d")))
    assert words.places(4) == [0.125, 0.375, 0.625, 0.875]
    assert [words.place(value) for value in ("a", "d", "e", 1)] == [0.125, 0.875, None, None]


def test_marks_lie_where_their_labels_do() -> None:
    words = ruler(ParameterRange("word", RangeKind.CATEGORICAL, values=('"a"', '"z"', "zz", "d", "e", "f")))
    assert [mark.label for mark in words.marks] == ["a", "z", "zz", "d", "e", "f"]
    assert [mark.place for mark in words.marks] == pytest.approx([(index + 0.5) / 6 for index in range(6)])
    layers = ruler(ParameterRange("layers", RangeKind.INTEGER, low=1, high=2, scaling=Scaling.LINEAR))
    assert [mark.label for mark in layers.marks] == ["1", "2"]
    assert [mark.place for mark in layers.marks] == pytest.approx([0.25, 0.75])
    rate = ruler(ParameterRange("rate", RangeKind.CONTINUOUS, low=0.0, high=0.0123456, scaling=Scaling.LINEAR))
    assert [mark.label for mark in rate.marks] == ["0", "0.00309", "0.00617", "0.00926", "0.0123"]
    assert [mark.place for mark in rate.marks] == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])


def test_a_ruler_is_that_of_its_hyperparameter() -> None:
    rulers = [ruler(asked) for asked in RANGES]
    assert [(each.name, each.is_categorical) for each in rulers] == [("lr", False), ("layers", False), ("opt", True)]
