"""What is chosen for a tuning job with Autotune where its user left it out: ranges around example values, and limits.

A range is guessed from the name of a hyperparameter and one value of it. What the name tells comes first, then what
kind of number the value is. A hyperparameter of which nothing can be guessed, such as the name of a loss, is not
searched: it stays what its example says, as AWS leaves out what it finds not eligible.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from trainyard.foundation.tuning import (
    Completion,
    EarlyStopping,
    ParameterRange,
    RangeKind,
    Scaling,
    StrategyKind,
    TuningPlan,
)

MOST_TRIALS = 750  # that AWS allows by default
MOST_VALUES = 30  # of a categorical range, as AWS has it

_BOOLEANS = (("true", "false"), ("True", "False"), ("yes", "no"), ("on", "off"))


@dataclass(frozen=True, slots=True)
class Guess:
    """Which ranges are searched, and which hyperparameters stay as their example says."""

    ranges: tuple[ParameterRange, ...]
    static: Mapping[str, str]


def guess_ranges(hints: Mapping[str, str]) -> Guess:
    """Choose what to search around example values, by their names."""
    found = {name: guess_range(name, hint) for name, hint in hints.items()}
    return Guess(
        ranges=tuple(each for each in found.values() if each is not None),
        static={name: hint for name, hint in hints.items() if found[name] is None},
    )


def guess_range(name: str, hint: str) -> ParameterRange | None:
    """What a hyperparameter of this name may be when this is one of its values; None where nothing can be guessed."""
    text = hint.strip()
    several = _listed(text)
    if several:
        return ParameterRange(name, RangeKind.CATEGORICAL, values=several)
    pair = next((pair for pair in _BOOLEANS if text in pair), None)
    if pair is not None:
        return ParameterRange(name, RangeKind.CATEGORICAL, values=pair)
    number = _number(text)
    if number is None:
        return None
    hinted = _Hint(name, number, is_whole=re.fullmatch(r"[+-]?\d+", text) is not None)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "_", name).lower()
    named = (guess(hinted) for pattern, guess in _BY_NAME.items() if re.search(pattern, words))
    return next((each for each in named if each is not None), None) or _by_value(hinted)


def trial_limit(plan: TuningPlan) -> int:
    """How many trials a search of these ranges is worth: twenty, and ten more for each that has more than one value."""
    searched = sum(_is_searched(each) for definition in plan.definitions for each in definition.ranges)
    return min(MOST_TRIALS, 20 * len(plan.definitions) + 10 * searched)


def autotuned(plan: TuningPlan, *, given: Collection[str]) -> TuningPlan:
    """The plan with what its user left out chosen: `given` are the names of the fields that are not to be changed.

    A limit on the time is enough of a limit; without any, `trial_limit` is set. Trials are ended early by their curves,
    except where Hyperband ends them, and the search is over when it has converged.
    """
    if "strategy" not in given:
        plan = replace(plan, strategy=StrategyKind.BAYESIAN)
    if "early_stopping" not in given and plan.strategy is not StrategyKind.HYPERBAND:
        plan = replace(plan, early_stopping=EarlyStopping.CURVE)
    if "max_trials" not in given and plan.max_runtime_s is None and plan.strategy is not StrategyKind.GRID:
        plan = replace(plan, max_trials=trial_limit(plan))
    if "completion" not in given:
        plan = replace(plan, completion=Completion(on_convergence=True))
    return plan


def _listed(text: str) -> tuple[str, ...]:
    """The values of an example that names several: a JSON list, or words with commas between them."""
    if text.startswith("["):
        try:
            read = json.loads(text)
        except ValueError:
            return ()
        values = [each if isinstance(each, str) else json.dumps(each) for each in read]
    else:
        values = [part.strip() for part in text.split(",")]
    different = tuple(dict.fromkeys(value for value in values if value))
    return different if 2 <= len(different) <= MOST_VALUES else ()


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


@dataclass(frozen=True, slots=True)
class _Hint:
    name: str
    number: float
    is_whole: bool

    def between(self, low: float, high: float, scaling: Scaling) -> ParameterRange:
        if not self.is_whole:
            return ParameterRange(self.name, RangeKind.CONTINUOUS, _rounded(low), _rounded(high), scaling)
        return ParameterRange(self.name, RangeKind.INTEGER, math.floor(low), math.ceil(high), scaling)

    def times(self, factor: float, *, at_most: float = math.inf) -> ParameterRange:
        """From so many times less to so many times more, in steps of equal ratio."""
        low = max(1.0, self.number / factor) if self.is_whole else self.number / factor
        return self.between(low, min(self.number * factor, max(at_most, self.number)), Scaling.LOGARITHMIC)


def _learning_rate(hint: _Hint) -> ParameterRange | None:
    return hint.times(30, at_most=1.0) if hint.number > 0 and not hint.is_whole else None


def _dropout(hint: _Hint) -> ParameterRange | None:
    if not 0 <= hint.number <= 0.9:
        return None
    return replace(hint, is_whole=False).between(0.0, max(0.5, min(0.9, 1.5 * hint.number)), Scaling.LINEAR)


def _momentum(hint: _Hint) -> ParameterRange | None:
    """Ten times nearer to 1 and ten times further away: 0.9 is searched from 0 to 0.99."""
    if not 0 < hint.number < 1:
        return None
    away = _rounded(1 - hint.number)
    low, high = max(0.0, 1 - 10 * away), 1 - away / 10
    return ParameterRange(hint.name, RangeKind.CONTINUOUS, low, high, Scaling.REVERSE_LOGARITHMIC)


def _penalty(hint: _Hint) -> ParameterRange | None:
    if hint.number == 0:
        return ParameterRange(hint.name, RangeKind.CONTINUOUS, 1e-6, 0.1, Scaling.LOGARITHMIC)
    return replace(hint, is_whole=False).times(100) if hint.number > 0 else None


def _share(hint: _Hint) -> ParameterRange | None:
    if not 0 < hint.number <= 1:
        return None
    return replace(hint, is_whole=False).between(hint.number / 2, 1.0, Scaling.LINEAR)


def _size(hint: _Hint) -> ParameterRange | None:
    return hint.times(4) if hint.is_whole and hint.number > 0 else None


# The first of these that a name matches says what to search, if it can be with such a value. Names are in lower case
# with their words joined by "_".
_BY_NAME: Mapping[str, Callable[[_Hint], ParameterRange | None]] = {
    r"drop": _dropout,
    r"(^|_)(wd|weight_decay|l[12]|alpha|lambda|reg|epsilon|eps|tol)(_|$)|regular|penalty": _penalty,
    r"(^|_)(momentum|beta_?[12]?|rho|discount)(_|$)": _momentum,
    r"(^|_)(lr|eta0?|learning_?rate)(_|$)": _learning_rate,
    r"subsample|colsample|fraction|ratio": _share,
    r"batch|hidden|embed|unit|channel|filter|neuron|width|epoch|round|estimators|iter|trees|leaves": _size,
}


def _by_value(hint: _Hint) -> ParameterRange | None:
    number = hint.number
    if number == 0:
        return None if hint.is_whole else hint.between(0.0, 1.0, Scaling.LINEAR)
    if number < 0:
        return hint.between(2 * number, number / 2, Scaling.LINEAR)
    if hint.is_whole:
        return hint.times(4) if number > 10 else hint.between(max(1.0, number / 2), 2 * number, Scaling.LINEAR)
    if 0.1 <= number <= 1:
        return hint.between(number / 3, min(1.0, 3 * number), Scaling.LINEAR)
    return hint.times(10)


def _rounded(bound: float) -> float:
    """Without the digits that computing with it brought in: users read it."""
    return float(f"{bound:.6g}")


def _is_searched(asked: ParameterRange) -> bool:
    return len(asked.values) > 1 or asked.low < asked.high
