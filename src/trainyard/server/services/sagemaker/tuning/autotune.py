"""Autotune: choose what the request of a tuning job leaves open, and return it as if it had been requested."""

from collections.abc import Mapping
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind
from trainyard.insight.tuning.autotune import guess_ranges
from trainyard.server.services.contract import Shape

# Retries of a training job whose definition has no RetryStrategy.
DEFAULT_RETRIES = 3

_ONE, _SEVERAL = "TrainingJobDefinition", "TrainingJobDefinitions"
_CONFIG, _AUTO, _STATIC = "HyperParameterTuningJobConfig", "AutoParameters", "StaticHyperParameters"
_LISTS = {
    RangeKind.INTEGER: "IntegerParameterRanges",
    RangeKind.CONTINUOUS: "ContinuousParameterRanges",
    RangeKind.CATEGORICAL: "CategoricalParameterRanges",
}


def is_autotuned(request: Mapping[str, Any]) -> bool:
    return "Autotune" in request


def with_ranges(request: Shape) -> Shape:
    """Return the request with a range for each of its AutoParameters; one that cannot have a range becomes static.

    Raises InvalidRequest if there are AutoParameters without Autotune.
    """
    if not is_autotuned(request):
        _refuse_auto_parameters(request)
        return request
    if _SEVERAL in request:
        return {**request, _SEVERAL: [_with_own_ranges(each) for each in request[_SEVERAL]]}
    if _ONE not in request:
        return request
    config, definition = dict(request[_CONFIG]), _with_own_ranges(request[_ONE])
    if "ParameterRanges" in config:
        config["ParameterRanges"], static = _guess_missing_ranges(config["ParameterRanges"])
        definition[_STATIC] = {**static, **definition.get(_STATIC, {})}
    return {**request, _CONFIG: config, _ONE: definition}


def _refuse_auto_parameters(request: Shape) -> None:
    several = [request.get(_ONE, {}), *request.get(_SEVERAL, ())]
    ranges = [request[_CONFIG].get("ParameterRanges", {}), *(each.get("HyperParameterRanges", {}) for each in several)]
    if any(each.get(_AUTO) for each in ranges):
        raise InvalidRequest(f"{_AUTO} need Autotune with the Mode Enabled; otherwise give the parameters ranges.")


def _with_own_ranges(definition: Mapping[str, Any]) -> Shape:
    after = {"RetryStrategy": {"MaximumRetryAttempts": DEFAULT_RETRIES}, **definition}
    if "HyperParameterRanges" in definition:
        after["HyperParameterRanges"], static = _guess_missing_ranges(definition["HyperParameterRanges"])
        after[_STATIC] = {**static, **definition.get(_STATIC, {})}
    return after


def _guess_missing_ranges(ranges: Mapping[str, Any]) -> tuple[Shape, Mapping[str, str]]:
    """Return the ranges with the guessed ones added, and the parameters that stay static."""
    guess = guess_ranges({each["Name"]: each["ValueHint"] for each in ranges.get(_AUTO, ())})
    after = dict(ranges)
    for kind, member in _LISTS.items():
        guessed = [_range_shape(each) for each in guess.ranges if each.kind is kind]
        if guessed:
            after[member] = [*ranges.get(member, ()), *guessed]
    return after, guess.static


def _range_shape(found: HyperparameterRange) -> Shape:
    if found.kind is RangeKind.CATEGORICAL:
        return {"Name": found.name, "Values": list(found.values)}
    low, high = (_text(bound, found.kind) for bound in (found.low, found.high))
    return {"Name": found.name, "MinValue": low, "MaxValue": high, "ScalingType": str(found.scaling)}


def _text(bound: float, kind: RangeKind) -> str:
    return str(int(bound)) if kind is RangeKind.INTEGER else repr(float(bound))
