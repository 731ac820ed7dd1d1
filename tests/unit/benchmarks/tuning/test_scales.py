import pytest

from benchmarks.tuning.problem import continuous, integer, logarithmic, logarithmic_integer, reverse_logarithmic
from benchmarks.tuning.scales import from_unit, to_unit
from trainyard.foundation.jobs.tuning import HyperparameterRange

RANGES = [
    continuous("linear", -3, 7),
    logarithmic("log", 1e-5, 10),
    reverse_logarithmic("reverse", 0, 0.999),
    integer("whole", -4, 40),
    logarithmic_integer("whole-log", 1, 512),
]


@pytest.mark.parametrize("within", RANGES, ids=lambda within: within.name)
def test_the_ends_of_a_range_are_those_of_the_unit(within: HyperparameterRange) -> None:
    assert (from_unit(within, 0.0), from_unit(within, 1.0)) == pytest.approx((within.low, within.high))
    assert (to_unit(within, within.low), to_unit(within, within.high)) == (0.0, 1.0)


@pytest.mark.parametrize("within", RANGES, ids=lambda within: within.name)
def test_a_value_comes_back_from_its_place(within: HyperparameterRange) -> None:
    for share in (0.1, 0.37, 0.5, 0.93):
        value = from_unit(within, share)
        assert from_unit(within, to_unit(within, value)) == pytest.approx(value)


def test_the_middle_of_a_scale_is_what_the_scale_says() -> None:
    assert from_unit(logarithmic("log", 1e-4, 1), 0.5) == pytest.approx(1e-2)
    assert from_unit(reverse_logarithmic("reverse", 0, 0.99), 0.5) == pytest.approx(0.9)
    assert from_unit(integer("whole", 0, 10), 0.5) == 5
