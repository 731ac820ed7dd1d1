from typing import Any

import pytest

from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.tuning.requests import (
    RATE,
    config,
    create_tuning,
    definition,
    describe_tuning,
    study,
)
from trainyard.wire.fault import Fault

HINTS = [
    {"Name": "lr", "ValueHint": "0.01"},
    {"Name": "layers", "ValueHint": "4"},
    {"Name": "bias", "ValueHint": "true"},
    {"Name": "kind", "ValueHint": "resnet"},
]
ENABLED = {"Mode": "Enabled"}


def test_hints_become_ranges_and_are_described(anna: As) -> None:
    asked = config(ParameterRanges={"AutoParameters": HINTS}, ResourceLimits={"MaxParallelTrainingJobs": 1})
    create_tuning(anna, HyperParameterTuningJobConfig=asked, Autotune=ENABLED)
    plan = study(anna).plan
    ranges = {each.name: each for each in plan.definitions[0].ranges}
    assert ranges.keys() == {"lr", "layers", "bias"}
    assert ranges["lr"].low < 0.01 < ranges["lr"].high
    assert plan.definitions[0].static["kind"] == "resnet"
    assert plan.max_trials is not None
    told = describe_tuning(anna)
    assert told["Autotune"] == ENABLED
    assert told["TrainingJobDefinition"]["RetryStrategy"] == {"MaximumRetryAttempts": 3}
    assert told["HyperParameterTuningJobConfig"]["ResourceLimits"]["MaxNumberOfTrainingJobs"] == plan.max_trials
    assert told["HyperParameterTuningJobConfig"]["TrainingJobEarlyStoppingType"] == "Auto"
    criteria = told["HyperParameterTuningJobConfig"]["TuningJobCompletionCriteria"]
    assert criteria == {"ConvergenceDetected": {"CompleteOnConvergence": "Enabled"}}
    (rate,) = told["HyperParameterTuningJobConfig"]["ParameterRanges"]["ContinuousParameterRanges"]
    assert float(rate["MinValue"]) == ranges["lr"].low


def test_ranges_that_are_given_stay_beside_those_that_are_chosen(anna: As) -> None:
    objective = {"Type": "Minimize", "MetricName": "loss"}
    own = {"ContinuousParameterRanges": [RATE], "AutoParameters": HINTS[1:2]}
    one = definition(anna, DefinitionName="one", TuningObjective=objective, HyperParameterRanges=own)
    several = config(HyperParameterTuningJobObjective=None, ParameterRanges=None)
    changed: dict[str, Any] = {"TrainingJobDefinition": None, "TrainingJobDefinitions": [one]}
    create_tuning(anna, HyperParameterTuningJobConfig=several, Autotune=ENABLED, **changed)
    layers, rate = study(anna).plan.definitions[0].ranges
    assert (layers.name, rate.name, rate.low, rate.high) == ("layers", "lr", 0.001, 0.1)


def test_hints_without_autotune_are_refused(anna: As) -> None:
    with pytest.raises(
        Fault, match="AutoParameters need Autotune with the Mode Enabled; otherwise give the parameters ranges"
    ):
        create_tuning(anna, HyperParameterTuningJobConfig=config(ParameterRanges={"AutoParameters": HINTS}))
