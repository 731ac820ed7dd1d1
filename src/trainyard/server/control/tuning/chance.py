"""A trial by chance, for when the strategy cannot be asked; nothing but the standard library is needed."""

import math
from random import Random

from trainyard.foundation.tuning import ParameterRange, RangeKind, Scaling, TuningPlan
from trainyard.server.control.tuning.contract import Suggestion


def by_chance(plan: TuningPlan, number: int) -> Suggestion:
    """The same for the same plan and number."""
    dice = Random(f"{plan.seed}/{number}")
    definition = dice.choice(plan.definitions)
    return Suggestion(definition.name, {each.name: _drawn(each, dice) for each in definition.ranges})


def _drawn(given: ParameterRange, dice: Random) -> str:
    if given.kind is RangeKind.CATEGORICAL:
        return dice.choice(given.values)
    value = _number(given, dice.random())
    bounded = min(given.high, max(given.low, value))
    return str(round(bounded)) if given.kind is RangeKind.INTEGER else repr(bounded)


def _number(given: ParameterRange, part: float) -> float:
    if given.scaling is Scaling.LOGARITHMIC and given.low > 0:
        return math.exp(math.log(given.low) * (1 - part) + math.log(given.high) * part)
    if given.scaling is Scaling.REVERSE_LOGARITHMIC and given.high < 1:
        return 1 - math.exp(math.log1p(-given.low) * (1 - part) + math.log1p(-given.high) * part)
    return given.low + (given.high - given.low) * part
