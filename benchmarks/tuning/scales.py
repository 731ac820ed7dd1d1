"""Maps numeric ranges to the unit interval, for engines and tables without scaling of their own."""

from math import exp, log

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling


def to_unit(within: HyperparameterRange, value: float) -> float:
    """Return the position of a number in its range, from 0 to 1, on the scale of the range."""
    low, high = _to_scale(within, within.low), _to_scale(within, within.high)
    return min(max((_to_scale(within, value) - low) / (high - low), 0.0), 1.0)


def from_unit(within: HyperparameterRange, share: float) -> float | int:
    """Return the number at a position. Integers have cells of equal width on the scale, half as wide at the ends."""
    low, high = _to_scale(within, within.low), _to_scale(within, within.high)
    value = _from_scale(within, low + min(max(share, 0.0), 1.0) * (high - low))
    value = min(max(value, within.low), within.high)
    return round(value) if within.kind is RangeKind.INTEGER else value


def _to_scale(within: HyperparameterRange, value: float) -> float:
    if within.scaling is Scaling.LOGARITHMIC:
        return log(value)
    return -log(1 - value) if within.scaling is Scaling.REVERSE_LOGARITHMIC else value


def _from_scale(within: HyperparameterRange, scaled: float) -> float:
    if within.scaling is Scaling.LOGARITHMIC:
        return exp(scaled)
    return 1 - exp(-scaled) if within.scaling is Scaling.REVERSE_LOGARITHMIC else scaled
