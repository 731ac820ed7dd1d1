import numpy as np
import pytest

from trainyard.foundation.jobs.tuning import Scaling
from trainyard.insight.tuning.scales import (
    LinearScale,
    LogarithmicScale,
    ReverseLogarithmicScale,
    Scale,
    scale_between,
)

UNITS = np.linspace(0.0, 1.0, 11)


@pytest.mark.parametrize(
    "scale",
    [
        LinearScale(-3.0, 5.0),
        LinearScale(-1.7e308, 1.7e308),
        LinearScale(0.0, 5e-324),
        LogarithmicScale(1e-300, 1e300),
        LogarithmicScale(1e300, 1.797e308),
        ReverseLogarithmicScale(0.0, 0.999999),
    ],
)
def test_a_scale_runs_from_one_bound_to_the_other_in_order(scale: Scale) -> None:
    low, high = scale.low, scale.high  # type: ignore[attr-defined]
    np.testing.assert_allclose(scale.unit(np.array([low, high])), [0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(scale.number(np.array([0.0, 1.0])), [low, high], rtol=1e-12)
    numbers = scale.number(UNITS)
    assert np.all(np.diff(numbers) >= 0)
    assert np.all(np.isfinite(numbers))


@pytest.mark.parametrize(
    "scale", [LinearScale(-3.0, 5.0), LogarithmicScale(1e-6, 10.0), ReverseLogarithmicScale(0.5, 0.9999)]
)
def test_what_is_scaled_comes_back(scale: Scale) -> None:
    np.testing.assert_allclose(scale.unit(scale.number(UNITS)), UNITS, atol=1e-12)


def test_equal_steps_are_equal_factors_on_a_logarithmic_scale() -> None:
    np.testing.assert_allclose(LogarithmicScale(1e-4, 1.0).number(np.array([0.25, 0.5, 0.75])), [1e-3, 1e-2, 1e-1])


def test_equal_steps_are_equal_factors_of_the_distance_to_one_on_a_reverse_scale() -> None:
    found = ReverseLogarithmicScale(0.0, 0.9999).number(np.array([0.25, 0.5, 0.75]))
    np.testing.assert_allclose(found, [0.9, 0.99, 0.999])


@pytest.mark.parametrize(
    ("low", "high", "scaling"),
    [
        (0.0, 1.0, Scaling.LOGARITHMIC),
        (1e300, float(np.nextafter(1e300, 2e300)), Scaling.LOGARITHMIC),
        (0.0, 1.0, Scaling.REVERSE_LOGARITHMIC),
        (-0.5, 0.5, Scaling.REVERSE_LOGARITHMIC),
        (0.2400002001, float(np.nextafter(0.2400002001, 1.0)), Scaling.REVERSE_LOGARITHMIC),
    ],
)
def test_bounds_that_a_scale_cannot_hold_are_scaled_linearly(low: float, high: float, scaling: Scaling) -> None:
    assert scale_between(low, high, scaling) == LinearScale(low, high)
