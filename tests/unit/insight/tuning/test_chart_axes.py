import pytest

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.chart_axes import ChartAxis
from trainyard.insight.tuning.space import Space

RANGES = (
    HyperparameterRange("lr", RangeKind.CONTINUOUS, low=1e-5, high=1e-1, scaling=Scaling.LOGARITHMIC),
    HyperparameterRange("layers", RangeKind.INTEGER, low=1, high=8),
    HyperparameterRange("opt", RangeKind.CATEGORICAL, values=('"adam"', '"sgd"')),
)


def test_numbers_are_on_their_scale_and_categories_at_equal_distances() -> None:
    chart_axes = {axis.name: ChartAxis(axis) for axis in Space(RANGES).axes}
    assert chart_axes["lr"].position(1e-3) == pytest.approx(0.5)
    assert chart_axes["opt"].position('"adam"') == 0.25
    assert chart_axes["opt"].position('"gone"') is None
    assert [tick.label for tick in chart_axes["opt"].ticks] == ["adam", "sgd"]
    assert [tick.label for tick in chart_axes["lr"].ticks] == ["1e-05", "0.0001", "0.001", "0.01", "0.1"]
    assert [tick.label for tick in chart_axes["layers"].ticks][::4] == ["1", "8"]
    assert len(chart_axes["layers"].positions(41)) == 8


def chart_axis(asked: HyperparameterRange) -> ChartAxis:
    (axis,) = Space([asked]).axes
    return ChartAxis(axis)


def test_places_are_those_of_all_values_where_these_are_few_and_else_evenly_spread() -> None:
    layers = chart_axis(HyperparameterRange("layers", RangeKind.INTEGER, low=1, high=4, scaling=Scaling.LINEAR))
    assert layers.positions(4) == pytest.approx([0.125, 0.375, 0.625, 0.875])
    assert layers.positions(3) == [0.0, 0.5, 1.0]
    rate = chart_axis(HyperparameterRange("rate", RangeKind.CONTINUOUS, low=0.0, high=1.0))
    assert rate.positions(5) == [0.0, 0.25, 0.5, 0.75, 1.0]
    words = chart_axis(HyperparameterRange("word", RangeKind.CATEGORICAL, values=("a", "b", "c", "d")))
    assert words.positions(4) == [0.125, 0.375, 0.625, 0.875]
    assert [words.position(value) for value in ("a", "d", "e", 1)] == [0.125, 0.875, None, None]


def test_ticks_are_at_the_positions_of_their_labels() -> None:
    words = chart_axis(HyperparameterRange("word", RangeKind.CATEGORICAL, values=('"a"', '"z"', "zz", "d", "e", "f")))
    assert [tick.label for tick in words.ticks] == ["a", "z", "zz", "d", "e", "f"]
    assert [tick.position for tick in words.ticks] == pytest.approx([(index + 0.5) / 6 for index in range(6)])
    layers = chart_axis(HyperparameterRange("layers", RangeKind.INTEGER, low=1, high=2, scaling=Scaling.LINEAR))
    assert [tick.label for tick in layers.ticks] == ["1", "2"]
    assert [tick.position for tick in layers.ticks] == pytest.approx([0.25, 0.75])
    rate = chart_axis(
        HyperparameterRange("rate", RangeKind.CONTINUOUS, low=0.0, high=0.0123456, scaling=Scaling.LINEAR)
    )
    assert [tick.label for tick in rate.ticks] == ["0", "0.00309", "0.00617", "0.00926", "0.0123"]
    assert [tick.position for tick in rate.ticks] == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])


def test_a_chart_axis_has_the_name_of_its_hyperparameter() -> None:
    chart_axes = [chart_axis(asked) for asked in RANGES]
    assert [(each.name, each.is_categorical) for each in chart_axes] == [
        ("lr", False),
        ("layers", False),
        ("opt", True),
    ]
