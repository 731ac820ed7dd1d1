"""Autotune: what the user of a tuning job leaves open is chosen, and told back as if it had been asked for."""

from collections.abc import Mapping
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.tuning import ParameterRange, RangeKind
from trainyard.insight.tuning.autotune import guess_ranges
from trainyard.server.services.contract import Shape

RETRIES = 3  # of a training job whose definition has no RetryStrategy

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
    """The request with a range for each of its AutoParameters; one without a range is static, as its hint says.

    InvalidRequest when there are some, and no Autotune.
    """
    if not is_autotuned(request):
        _require_none(request)
        return request
    if _SEVERAL in request:
        return {**request, _SEVERAL: [_with_own_ranges(each) for each in request[_SEVERAL]]}
    if _ONE not in request:
        return request
    config, definition = dict(request[_CONFIG]), _with_own_ranges(request[_ONE])
    if "ParameterRanges" in config:
        config["ParameterRanges"], static = _chosen(config["ParameterRanges"])
        definition[_STATIC] = {**static, **definition.get(_STATIC, {})}
    return {**request, _CONFIG: config, _ONE: definition}


def _require_none(request: Shape) -> None:
    several = [request.get(_ONE, {}), *request.get(_SEVERAL, ())]
    ranges = [request[_CONFIG].get("ParameterRanges", {}), *(each.get("HyperParameterRanges", {}) for each in several)]
    if any(each.get(_AUTO) for each in ranges):
        raise InvalidRequest(f"{_AUTO} need an Autotune with the Mode Enabled; or give them ranges.")


def _with_own_ranges(definition: Mapping[str, Any]) -> Shape:
    after = {"RetryStrategy": {"MaximumRetryAttempts": RETRIES}, **definition}
    if "HyperParameterRanges" in definition:
        after["HyperParameterRanges"], static = _chosen(definition["HyperParameterRanges"])
        after[_STATIC] = {**static, **definition.get(_STATIC, {})}
    return after


def _chosen(ranges: Mapping[str, Any]) -> tuple[Shape, Mapping[str, str]]:
    """The ranges with those that were guessed, and what stays static."""
    guess = guess_ranges({each["Name"]: each["ValueHint"] for each in ranges.get(_AUTO, ())})
    after = dict(ranges)
    for kind, member in _LISTS.items():
        found = [_range_shape(each) for each in guess.ranges if each.kind is kind]
        if found:
            after[member] = [*ranges.get(member, ()), *found]
    return after, guess.static


def _range_shape(found: ParameterRange) -> Shape:
    if found.kind is RangeKind.CATEGORICAL:
        return {"Name": found.name, "Values": list(found.values)}
    low, high = (_text(bound, found.kind) for bound in (found.low, found.high))
    return {"Name": found.name, "MinValue": low, "MaxValue": high, "ScalingType": str(found.scaling)}


def _text(bound: float, kind: RangeKind) -> str:
    return str(int(bound)) if kind is RangeKind.INTEGER else repr(float(bound))
