"""TrainingJobDefinition and TrainingJobDefinitions: the algorithms of a tuning job, their ranges and objectives."""

from collections.abc import Mapping
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.tuning import Direction, Objective, TuningDefinition
from trainyard.server.services.sagemaker.tuning.ranges import ranges_of
from trainyard.server.services.sagemaker.tuning.trial_requests import OBJECTIVE

# Per training job.
MAX_HYPERPARAMETERS = 100

_ONE, _SEVERAL = "TrainingJobDefinition", "TrainingJobDefinitions"
# Members of HyperParameterTuningJobConfig, for all definitions.
_OBJECTIVE, _RANGES = "HyperParameterTuningJobObjective", "ParameterRanges"
# Members of one definition.
_OWN_OBJECTIVE, _OWN_RANGES = "TuningObjective", "HyperParameterRanges"


def definitions_of(request: Mapping[str, Any]) -> tuple[TuningDefinition, ...]:
    """Return the definitions of a tuning job; InvalidRequest if they conflict or lack ranges or an objective."""
    if (_ONE in request) == (_SEVERAL in request):
        raise InvalidRequest(f"A tuning job needs either a {_ONE} or {_SEVERAL}.")
    config = request["HyperParameterTuningJobConfig"]
    if _ONE in request:
        return (_require_consistent(_single_definition(request[_ONE], config), request[_ONE]),)
    for member, own in ((_OBJECTIVE, _OWN_OBJECTIVE), (_RANGES, _OWN_RANGES)):
        if member in config:
            raise InvalidRequest(
                f"HyperParameterTuningJobConfig has {member}, but with {_SEVERAL} each definition needs its own {own}."
            )
    found = tuple(_require_consistent(_named_definition(each), each) for each in request[_SEVERAL])
    _require_distinct(found)
    return found


def definition_label(definition: TuningDefinition) -> str:
    """Return how messages refer to a definition."""
    return f'The training job definition "{definition.name}"' if definition.name else "The training job definition"


def _single_definition(given: Mapping[str, Any], config: Mapping[str, Any]) -> TuningDefinition:
    """Parse a single definition, which may have the ranges and the objective itself or leave them to the config."""
    for member, own in ((_OBJECTIVE, _OWN_OBJECTIVE), (_RANGES, _OWN_RANGES)):
        if (member in config) == (own in given):
            raise InvalidRequest(f"A tuning job with a {_ONE} needs either {member}, or {own} in its definition.")
    return _parse_definition(
        given, config.get(_OBJECTIVE) or given[_OWN_OBJECTIVE], config.get(_RANGES, given.get(_OWN_RANGES))
    )


def _named_definition(given: Mapping[str, Any]) -> TuningDefinition:
    for member in ("DefinitionName", _OWN_OBJECTIVE, _OWN_RANGES):
        if member not in given:
            which = f' "{given["DefinitionName"]}"' if "DefinitionName" in given else ""
            raise InvalidRequest(f"Each of the {_SEVERAL} needs a {member}; one{which} has none.")
    return _parse_definition(given, given[_OWN_OBJECTIVE], given[_OWN_RANGES])


def _parse_definition(
    given: Mapping[str, Any], objective: Mapping[str, Any], ranges: Mapping[str, Any]
) -> TuningDefinition:
    static = {name: value for name, value in given.get("StaticHyperParameters", {}).items() if name != OBJECTIVE}
    return TuningDefinition(
        name=given.get("DefinitionName", ""),
        objective=Objective(objective["MetricName"], Direction(objective["Type"])),
        ranges=ranges_of(ranges),
        static=static,
    )


def _require_consistent(definition: TuningDefinition, given: Mapping[str, Any]) -> TuningDefinition:
    searched = {each.name for each in definition.ranges}
    if not searched:
        raise InvalidRequest(f"{definition_label(definition)} has no ranges to search; give at least one.")
    both = sorted(searched & definition.static.keys())
    if both:
        raise InvalidRequest(
            f"{definition_label(definition)} has {', '.join(both)} among its StaticHyperParameters and its ranges; "
            f"leave {'it' if len(both) == 1 else 'them'} out of one."
        )
    total = len(searched) + len(definition.static) + 1
    if total > MAX_HYPERPARAMETERS:
        raise InvalidRequest(
            f"{definition_label(definition)} has {total} hyperparameters, including {OBJECTIVE}, which is added; at "
            f"most {MAX_HYPERPARAMETERS} are allowed."
        )
    _require_metric(definition, given["AlgorithmSpecification"].get("MetricDefinitions", ()))
    return definition


def _require_metric(definition: TuningDefinition, metrics: Any) -> None:
    metric, known = definition.objective.metric, [each["Name"] for each in metrics]
    if metric in known:
        return
    others = f"it has {', '.join(known)}" if known else "it has none"
    raise InvalidRequest(
        f'{definition_label(definition)} has the objective metric "{metric}", which is not in its MetricDefinitions: '
        f"{others}. Add one with that Name and a Regex that finds the value in the program's output."
    )


def _require_distinct(definitions: tuple[TuningDefinition, ...]) -> None:
    names = [each.name for each in definitions]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(
                f'The DefinitionName "{name}" is used more than once; give each definition its own name.'
            )
    if len({each.objective.direction for each in definitions}) > 1:
        raise InvalidRequest(
            f"Some of the {_SEVERAL} Minimize and some Maximize their objective, so no training job would be the best "
            "of all; give all TuningObjectives the same Type."
        )
