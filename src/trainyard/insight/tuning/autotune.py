"""Autotune: chooses what the user of a tuning job left out, such as ranges around example values, and limits.

A range is guessed from the name of a hyperparameter and one example value: first from the name, then from the kind of
number. A hyperparameter for which no range can be guessed, such as the name of a loss, is not tuned and keeps its
example value, as AWS leaves out what it finds not eligible.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from trainyard.foundation.jobs.tuning import (
    CompletionCriteria,
    EarlyStopping,
    HyperparameterRange,
    RangeKind,
    Scaling,
    StrategyKind,
    TuningPlan,
)

# The default quota of AWS.
MAX_TRIALS = 750
# The maximum of AWS for a categorical range.
MAX_CATEGORIES = 30

_BOOLEANS = (("true", "false"), ("True", "False"), ("yes", "no"), ("on", "off"))


@dataclass(frozen=True, slots=True)
class Guess:
    """The guessed ranges, and the hyperparameters that keep their example values."""

    ranges: tuple[HyperparameterRange, ...]
    static: Mapping[str, str]


def guess_ranges(hints: Mapping[str, str]) -> Guess:
    """Guess ranges around example values, by name."""
    found = {name: guess_range(name, hint) for name, hint in hints.items()}
    return Guess(
        ranges=tuple(each for each in found.values() if each is not None),
        static={name: hint for name, hint in hints.items() if found[name] is None},
    )


def guess_range(name: str, hint: str) -> HyperparameterRange | None:
    """Guess the range of a hyperparameter from its name and an example value; None if that is not possible."""
    text = hint.strip()
    several = _parse_list(text)
    if several:
        return HyperparameterRange(name, RangeKind.CATEGORICAL, values=several)
    pair = next((pair for pair in _BOOLEANS if text in pair), None)
    if pair is not None:
        return HyperparameterRange(name, RangeKind.CATEGORICAL, values=pair)
    number = _parse_number(text)
    if number is None:
        return None
    hinted = _Hint(name, number, is_whole=re.fullmatch(r"[+-]?\d+", text) is not None)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "_", name).lower()
    named = (guess(hinted) for pattern, guess in _BY_NAME.items() if re.search(pattern, words))
    return next((each for each in named if each is not None), None) or _by_value(hinted)


def trial_limit(plan: TuningPlan) -> int:
    """Return a limit on the trials: 20 per definition, and 10 more for each range with more than one value."""
    searched = sum(_is_searched(each) for definition in plan.definitions for each in definition.ranges)
    return min(MAX_TRIALS, 20 * len(plan.definitions) + 10 * searched)


def apply_autotune(plan: TuningPlan, *, given: Collection[str]) -> TuningPlan:
    """Return the plan with what its user left out filled in; `given` names the fields that must not change.

    Without a limit on the time, the plan gets a `trial_limit`. Trials are ended early by the curve rule, unless
    Hyperband ends them, and the search ends when it has converged.
    """
    if "strategy" not in given:
        plan = replace(plan, strategy=StrategyKind.BAYESIAN)
    if "early_stopping" not in given and plan.strategy is not StrategyKind.HYPERBAND:
        plan = replace(plan, early_stopping=EarlyStopping.CURVE)
    if "max_trials" not in given and plan.max_runtime_s is None and plan.strategy is not StrategyKind.GRID:
        plan = replace(plan, max_trials=trial_limit(plan))
    if "completion" not in given:
        plan = replace(plan, completion=CompletionCriteria(on_convergence=True))
    return plan


def _parse_list(text: str) -> tuple[str, ...]:
    """Parse an example that lists several values: a JSON list, or words separated by commas."""
    if text.startswith("["):
        try:
            read = json.loads(text)
        except ValueError:
            return ()
        values = [each if isinstance(each, str) else json.dumps(each) for each in read]
    else:
        values = [part.strip() for part in text.split(",")]
    different = tuple(dict.fromkeys(value for value in values if value))
    return different if 2 <= len(different) <= MAX_CATEGORIES else ()


def _parse_number(text: str) -> float | None:
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

    def between(self, low: float, high: float, scaling: Scaling) -> HyperparameterRange:
        if not self.is_whole:
            return HyperparameterRange(self.name, RangeKind.CONTINUOUS, _round_bound(low), _round_bound(high), scaling)
        return HyperparameterRange(self.name, RangeKind.INTEGER, math.floor(low), math.ceil(high), scaling)

    def times(self, factor: float, *, at_most: float = math.inf) -> HyperparameterRange:
        """Return the logarithmic range from `factor` times less to `factor` times more."""
        low = max(1.0, self.number / factor) if self.is_whole else self.number / factor
        return self.between(low, min(self.number * factor, max(at_most, self.number)), Scaling.LOGARITHMIC)


def _learning_rate(hint: _Hint) -> HyperparameterRange | None:
    return hint.times(30, at_most=1.0) if hint.number > 0 and not hint.is_whole else None


def _dropout(hint: _Hint) -> HyperparameterRange | None:
    if not 0 <= hint.number <= 0.9:
        return None
    return replace(hint, is_whole=False).between(0.0, max(0.5, min(0.9, 1.5 * hint.number)), Scaling.LINEAR)


def _momentum(hint: _Hint) -> HyperparameterRange | None:
    """Return the range from ten times farther from 1 to ten times nearer: 0.9 gives 0 to 0.99."""
    if not 0 < hint.number < 1:
        return None
    away = _round_bound(1 - hint.number)
    low, high = max(0.0, 1 - 10 * away), 1 - away / 10
    return HyperparameterRange(hint.name, RangeKind.CONTINUOUS, low, high, Scaling.REVERSE_LOGARITHMIC)


def _penalty(hint: _Hint) -> HyperparameterRange | None:
    if hint.number == 0:
        return HyperparameterRange(hint.name, RangeKind.CONTINUOUS, 1e-6, 0.1, Scaling.LOGARITHMIC)
    return replace(hint, is_whole=False).times(100) if hint.number > 0 else None


def _share(hint: _Hint) -> HyperparameterRange | None:
    if not 0 < hint.number <= 1:
        return None
    return replace(hint, is_whole=False).between(hint.number / 2, 1.0, Scaling.LINEAR)


def _size(hint: _Hint) -> HyperparameterRange | None:
    return hint.times(4) if hint.is_whole and hint.number > 0 else None


# The first pattern that matches a name, and accepts the value, gives the range. Names are in lower case, with their
# words joined by "_".
_BY_NAME: Mapping[str, Callable[[_Hint], HyperparameterRange | None]] = {
    r"drop": _dropout,
    r"(^|_)(wd|weight_decay|l[12]|alpha|lambda|reg|epsilon|eps|tol)(_|$)|regular|penalty": _penalty,
    r"(^|_)(momentum|beta_?[12]?|rho|discount)(_|$)": _momentum,
    r"(^|_)(lr|eta0?|learning_?rate)(_|$)": _learning_rate,
    r"subsample|colsample|fraction|ratio": _share,
    r"batch|hidden|embed|unit|channel|filter|neuron|width|epoch|round|estimators|iter|trees|leaves": _size,
}


def _by_value(hint: _Hint) -> HyperparameterRange | None:
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


def _round_bound(bound: float) -> float:
    """Round off the digits that computing added, because users read the bounds."""
    return float(f"{bound:.6g}")


def _is_searched(parameter_range: HyperparameterRange) -> bool:
    return len(parameter_range.values) > 1 or parameter_range.low < parameter_range.high
