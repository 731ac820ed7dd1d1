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
