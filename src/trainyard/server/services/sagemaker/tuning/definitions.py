"""TrainingJobDefinition and TrainingJobDefinitions: the algorithms of a tuning job, what is searched and measured."""

from collections.abc import Mapping
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.tuning import Definition, Direction, Objective
from trainyard.server.services.sagemaker.tuning.ranges import ranges_of
from trainyard.server.services.sagemaker.tuning.trials import OBJECTIVE

MOST_HYPERPARAMETERS = 100  # of a training job

_ONE, _SEVERAL = "TrainingJobDefinition", "TrainingJobDefinitions"
_OBJECTIVE, _RANGES = "HyperParameterTuningJobObjective", "ParameterRanges"  # of all, in HyperParameterTuningJobConfig
_OWN_OBJECTIVE, _OWN_RANGES = "TuningObjective", "HyperParameterRanges"  # of one definition


def definitions_of(request: Mapping[str, Any]) -> tuple[Definition, ...]:
    """InvalidRequest when they contradict themselves, or leave open what is searched or measured."""
    if (_ONE in request) == (_SEVERAL in request):
        raise InvalidRequest(f"A tuning job needs either a {_ONE} or {_SEVERAL}.")
    config = request["HyperParameterTuningJobConfig"]
    if _ONE in request:
        return (_checked(_only(request[_ONE], config), request[_ONE]),)
    for member, own in ((_OBJECTIVE, _OWN_OBJECTIVE), (_RANGES, _OWN_RANGES)):
        if member in config:
            raise InvalidRequest(
                f"HyperParameterTuningJobConfig has {member}, but there are {_SEVERAL}; give each its {own} instead."
            )
    found = tuple(_checked(_one_of_several(each), each) for each in request[_SEVERAL])
    _require_distinct(found)
    return found


def named(definition: Definition) -> str:
    """How messages call a definition."""
    return f'The training job definition "{definition.name}"' if definition.name else "The training job definition"


def _only(given: Mapping[str, Any], config: Mapping[str, Any]) -> Definition:
    """What is searched and measured may stand in the definition or beside it."""
    for member, own in ((_OBJECTIVE, _OWN_OBJECTIVE), (_RANGES, _OWN_RANGES)):
        if (member in config) == (own in given):
            raise InvalidRequest(f"A tuning job with a {_ONE} needs either {member} or {own} in its definition.")
    return _definition(
        given, config.get(_OBJECTIVE) or given[_OWN_OBJECTIVE], config.get(_RANGES, given.get(_OWN_RANGES))
    )


def _one_of_several(given: Mapping[str, Any]) -> Definition:
    for member in ("DefinitionName", _OWN_OBJECTIVE, _OWN_RANGES):
        if member not in given:
            which = f' "{given["DefinitionName"]}"' if "DefinitionName" in given else ""
            raise InvalidRequest(f"Each of several {_SEVERAL} needs a {member}; one{which} has none.")
    return _definition(given, given[_OWN_OBJECTIVE], given[_OWN_RANGES])


def _definition(given: Mapping[str, Any], objective: Mapping[str, Any], ranges: Mapping[str, Any]) -> Definition:
    static = {name: value for name, value in given.get("StaticHyperParameters", {}).items() if name != OBJECTIVE}
    return Definition(
        name=given.get("DefinitionName", ""),
        objective=Objective(objective["MetricName"], Direction(objective["Type"])),
        ranges=ranges_of(ranges),
        static=static,
    )


def _checked(definition: Definition, given: Mapping[str, Any]) -> Definition:
    searched = {each.name for each in definition.ranges}
    if not searched:
        raise InvalidRequest(f"{named(definition)} has no range, so that there is nothing to search; give one or more.")
    both = sorted(searched & definition.static.keys())
    if both:
        raise InvalidRequest(
            f"{named(definition)} has {', '.join(both)} among its StaticHyperParameters and among its ranges; leave "
            f"{'it' if len(both) == 1 else 'them'} out of one."
        )
    total = len(searched) + len(definition.static) + 1
    if total > MOST_HYPERPARAMETERS:
        raise InvalidRequest(
            f"{named(definition)} has {total} hyperparameters, with {OBJECTIVE} that is added; at most "
            f"{MOST_HYPERPARAMETERS} are possible."
        )
    _require_metric(definition, given["AlgorithmSpecification"].get("MetricDefinitions", ()))
    return definition


def _require_metric(definition: Definition, metrics: Any) -> None:
    metric, known = definition.objective.metric, [each["Name"] for each in metrics]
    if metric in known:
        return
    others = f"there are {', '.join(known)}" if known else "there are none"
    raise InvalidRequest(
        f'{named(definition)} shall be tuned by the metric "{metric}", which is not among its MetricDefinitions: '
        f"{others}. Add one with that Name and a Regex that finds the number in what the program writes."
    )


def _require_distinct(definitions: tuple[Definition, ...]) -> None:
    names = [each.name for each in definitions]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f'The DefinitionName "{name}" is used more than once; give each definition its own.')
    if len({each.objective.direction for each in definitions}) > 1:
        raise InvalidRequest(
            f"Some of the {_SEVERAL} are to Minimize and some to Maximize, so that no training job would be the best "
            "of all; give all TuningObjectives one Type."
        )
