from typing import Any

from trainyard.server.dashboard.pages.tuning.search_space import definitions_of, limits_of, parents_of

OBJECTIVE = {"Type": "Maximize", "MetricName": "accuracy"}
RATE = {"Name": "lr", "MinValue": "0.0001", "MaxValue": "0.1", "ScalingType": "Auto"}
LAYERS = {"Name": "layers", "MinValue": "1", "MaxValue": "8"}
RANGES = {
    "ContinuousParameterRanges": [RATE],
    "IntegerParameterRanges": [LAYERS],
    "CategoricalParameterRanges": [{"Name": "optimizer", "Values": ['"adam"', '"sgd"']}],
}


def description(**config: Any) -> dict[str, Any]:
    limits = {"MaxNumberOfTrainingJobs": 20, "MaxParallelTrainingJobs": 2}
    return {
        "HyperParameterTuningJobConfig": {
            "ResourceLimits": limits,
            "HyperParameterTuningJobObjective": OBJECTIVE,
            "ParameterRanges": RANGES,
            **config,
        },
        "TrainingJobDefinition": {"StaticHyperParameters": {"epochs": "3", "sagemaker_program": "x", "_tuning": "y"}},
    }


def test_ranges_become_axes_on_the_scale_on_which_they_are_searched() -> None:
    (definition,) = definitions_of(description())
    assert (definition["name"], definition["metric"], definition["isMaximized"]) == ("", "accuracy", True)
    assert definition["axes"] == [
        {"name": "lr", "kind": "continuous", "low": 0.0001, "high": 0.1, "scaling": "Logarithmic"},
        {"name": "layers", "kind": "integer", "low": 1.0, "high": 8.0, "scaling": "Linear"},
        {"name": "optimizer", "kind": "categorical", "values": ['"adam"', '"sgd"']},
    ]
    assert definition["static"] == {"epochs": "3"}, "where the program is belongs to the definition"


def test_each_of_several_definitions_has_its_own_objective_and_ranges() -> None:
    told = description()
    del told["TrainingJobDefinition"]
    told["TrainingJobDefinitions"] = [
        {
            "DefinitionName": name,
            "TuningObjective": {"Type": "Minimize", "MetricName": f"{name}-loss"},
            "HyperParameterRanges": {"ContinuousParameterRanges": [RATE]},
        }
        for name in ("trees", "network")
    ]
    found = definitions_of(told)
    assert [(each["name"], each["metric"], len(each["axes"])) for each in found] == [
        ("trees", "trees-loss", 1),
        ("network", "network-loss", 1),
    ]


def test_limits_are_those_that_were_set() -> None:
    limits = limits_of(description())
    assert (limits["trials"], limits["parallel"]) == (20, 2)
    assert (limits["runtime"], limits["target"], limits["withoutImprovement"]) == (None, None, None)
    assert not limits["onConvergence"]
    criteria = {
        "TargetObjectiveMetricValue": 0.9,
        "BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 5},
        "ConvergenceDetected": {"CompleteOnConvergence": "Enabled"},
    }
    limits = limits_of(description(TuningJobCompletionCriteria=criteria))
    assert (limits["target"], limits["withoutImprovement"], limits["onConvergence"]) == (0.9, 5, True)


def test_the_parents_of_a_warm_start_are_named() -> None:
    parents = [{"HyperParameterTuningJobName": "first"}]
    start = {"ParentHyperParameterTuningJobs": parents, "WarmStartType": "TransferLearning"}
    assert parents_of(description()) is None
    assert parents_of({**description(), "WarmStartConfig": start}) == {"names": ["first"], "isIdentical": False}
