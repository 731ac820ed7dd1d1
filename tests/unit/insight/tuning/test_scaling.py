import pytest

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.scaling import scaling_of


@pytest.mark.parametrize(
    ("kind", "low", "high", "expected"),
    [
        (RangeKind.CONTINUOUS, 0.001, 0.1, Scaling.LOGARITHMIC),
        (RangeKind.CONTINUOUS, 1e-300, 1e300, Scaling.LOGARITHMIC),
        (RangeKind.CONTINUOUS, 0.1, 0.9, Scaling.LINEAR),
        (RangeKind.CONTINUOUS, 0.0, 1.0, Scaling.LINEAR),
        (RangeKind.CONTINUOUS, -1.0, 1000.0, Scaling.LINEAR),
        (RangeKind.INTEGER, 1, 100, Scaling.LINEAR),
        (RangeKind.INTEGER, 1, 1000, Scaling.LOGARITHMIC),
    ],
)
def test_auto_is_logarithmic_where_the_bounds_are_orders_of_magnitude_apart(
    kind: RangeKind, low: float, high: float, expected: Scaling
) -> None:
    assert scaling_of(HyperparameterRange("x", kind, low, high)) is expected


def test_an_asked_scaling_is_kept() -> None:
    asked = HyperparameterRange("x", RangeKind.CONTINUOUS, 1e-9, 1.0, Scaling.LINEAR)
    assert scaling_of(asked) is Scaling.LINEAR
