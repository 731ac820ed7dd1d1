from typing import Any

import pytest

from tests.unit.server.services.sagemaker.tuning.requests import DEPTH, LOSS, RATE, config
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.tuning import Direction, Objective
from trainyard.server.services.sagemaker.tuning.definitions import definitions_of

OBJECTIVE = {"Type": "Maximize", "MetricName": "loss"}
RANGES = {"ContinuousParameterRanges": [RATE]}
NEITHER = config(HyperParameterTuningJobObjective=None, ParameterRanges=None)


def only(static: dict[str, str] | None = None, **changed: Any) -> dict[str, Any]:
    algorithm = {"TrainingImage": "i", "TrainingInputMode": "File", "MetricDefinitions": [LOSS]}
    return {"AlgorithmSpecification": algorithm, "StaticHyperParameters": static or {}, **changed}


def one_of(name: str, **changed: Any) -> dict[str, Any]:
    own = {"DefinitionName": name, "TuningObjective": OBJECTIVE, "HyperParameterRanges": RANGES}
    given = only(**(own | changed))
    return {member: value for member, value in given.items() if value is not None}


def request(*definitions: dict[str, Any], settings: dict[str, Any] | None = None) -> dict[str, Any]:
    if len(definitions) == 1 and "DefinitionName" not in definitions[0]:
        return {"HyperParameterTuningJobConfig": settings or config(), "TrainingJobDefinition": definitions[0]}
    return {"HyperParameterTuningJobConfig": settings or NEITHER, "TrainingJobDefinitions": list(definitions)}


def test_a_single_definition_takes_its_ranges_from_the_config_or_itself() -> None:
    (beside,) = definitions_of(request(only()))
    (inside,) = definitions_of(request(only(TuningObjective=OBJECTIVE, HyperParameterRanges=RANGES), settings=NEITHER))
    assert (beside.name, beside.objective) == ("", Objective("loss", Direction.MINIMIZE))
    assert inside.objective == Objective("loss", Direction.MAXIMIZE)
    assert [each.name for each in inside.ranges] == ["lr"]


def test_several_definitions_keep_their_names_and_order() -> None:
    found = definitions_of(request(one_of("b"), one_of("a")))
    assert [each.name for each in found] == ["b", "a"]


def test_the_objective_among_static_hyperparameters_is_ignored() -> None:
    """The description of another tuning job contains the objective."""
    (found,) = definitions_of(request(only({"_tuning_objective_metric": "old", "epochs": "3"})))
    assert found.static == {"epochs": "3"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"HyperParameterTuningJobConfig": config()}, "needs either a TrainingJobDefinition or TrainingJobDefinitions"),
        (
            {**request(only()), "TrainingJobDefinitions": [one_of("a")]},
            "needs either a TrainingJobDefinition or TrainingJobDefinitions",
        ),
        (request(only(), settings=NEITHER), "needs either HyperParameterTuningJobObjective, or TuningObjective"),
        (request(only(TuningObjective=OBJECTIVE)), "needs either HyperParameterTuningJobObjective, or TuningObjective"),
        (request(one_of("a"), settings=config()), "each definition needs its own TuningObjective"),
        (request(one_of("a", TuningObjective=None), one_of("b")), 'needs a TuningObjective; one "a" has none'),
        (
            request(one_of("a"), one_of("b", HyperParameterRanges=None)),
            'needs a HyperParameterRanges; one "b" has none',
        ),
        (request(one_of("a"), one_of("a")), 'The DefinitionName "a" is used more than once'),
        (
            request(one_of("a"), one_of("b", TuningObjective={"Type": "Minimize", "MetricName": "loss"})),
            "give all TuningObjectives the same Type",
        ),
        (
            request(only({"lr": "1", "depth": "2"})),
            "has depth, lr among its StaticHyperParameters and its ranges",
        ),
        (request(only(), settings=config(ParameterRanges={})), "has no ranges to search"),
        (
            request(only({f"h{number}": "1" for number in range(98)})),
            "has 101 hyperparameters, including _tuning_objective_metric, which is added; at most 100 are allowed",
        ),
        (
            request(
                only(), settings=config(HyperParameterTuningJobObjective={"Type": "Minimize", "MetricName": "error"})
            ),
            'has the objective metric "error", which is not in its MetricDefinitions: it has loss. Add one',
        ),
        (
            request(only(AlgorithmSpecification={"TrainingImage": "i", "TrainingInputMode": "File"})),
            'has the objective metric "loss", which is not in its MetricDefinitions: it has none. Add one',
        ),
    ],
)
def test_definitions_that_leave_something_open_or_contradict_themselves_are_refused(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        definitions_of(given)
    assert message in caught.value.message


def test_ninety_nine_hyperparameters_and_the_objective_are_possible() -> None:
    settings = config(ParameterRanges={"IntegerParameterRanges": [DEPTH]})
    (found,) = definitions_of(request(only({f"h{number}": "1" for number in range(98)}), settings=settings))
    assert len(found.static) == 98
