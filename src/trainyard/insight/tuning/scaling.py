"""On which scale a numeric range is searched."""

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling

# Auto is logarithmic if the ratio of the bounds is at least this. A real number that varies by a factor of 100, such as
# a learning rate from 0.001 to 0.1, is meant in orders of magnitude: on a linear scale nine of ten trials would fall
# into the upper one. The lower bound of an integer is more often just the smallest sensible value (1 to 100 trees), and
# on a logarithmic scale a fifth of all trials would be spent on it; so integers need a factor of 1000.
_MIN_LOGARITHMIC_RATIO = {RangeKind.CONTINUOUS: 100.0, RangeKind.INTEGER: 1000.0}


def scaling_of(parameter_range: HyperparameterRange) -> Scaling:
    """Return the scaling of a range; Auto depends on the ratio of the bounds."""
    if parameter_range.scaling is not Scaling.AUTO:
        return parameter_range.scaling
    is_wide = (
        parameter_range.low > 0
        and parameter_range.high / parameter_range.low >= _MIN_LOGARITHMIC_RATIO[parameter_range.kind]
    )
    return Scaling.LOGARITHMIC if is_wide else Scaling.LINEAR
