"""Numeric ranges as the unit interval, for engines and tables that know no scaling of their own."""

from math import exp, log

from trainyard.foundation.tuning import ParameterRange, RangeKind, Scaling


def to_unit(within: ParameterRange, value: float) -> float:
    """Where a number lies between the ends of its range, by the scaling of the range."""
    low, high = _scaled(within, within.low), _scaled(within, within.high)
    return min(max((_scaled(within, value) - low) / (high - low), 0.0), 1.0)


def from_unit(within: ParameterRange, share: float) -> float | int:
    """The number that lies there; integers have cells of equal width on the scale, the ends' half as wide."""
    low, high = _scaled(within, within.low), _scaled(within, within.high)
    value = _unscaled(within, low + min(max(share, 0.0), 1.0) * (high - low))
    value = min(max(value, within.low), within.high)
    return round(value) if within.kind is RangeKind.INTEGER else value


def _scaled(within: ParameterRange, value: float) -> float:
    if within.scaling is Scaling.LOGARITHMIC:
        return log(value)
    return -log(1 - value) if within.scaling is Scaling.REVERSE_LOGARITHMIC else value


def _unscaled(within: ParameterRange, scaled: float) -> float:
    if within.scaling is Scaling.LOGARITHMIC:
        return exp(scaled)
    return 1 - exp(-scaled) if within.scaling is Scaling.REVERSE_LOGARITHMIC else scaled
