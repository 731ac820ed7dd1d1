"""What a tuning job searches and within which limits, from its description, as the page's script reads it."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.scaling import scaling_of

_KINDS = {
    "ContinuousParameterRanges": RangeKind.CONTINUOUS,
    "IntegerParameterRanges": RangeKind.INTEGER,
    "CategoricalParameterRanges": RangeKind.CATEGORICAL,
}
_NO_LIMIT: Mapping[str, Any] = {}


def definitions_of(description: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the algorithms of a tuning job: names, objectives, the axes of what is tuned, and what is static."""
    config = description["HyperParameterTuningJobConfig"]
    several = description.get("TrainingJobDefinitions") or [description["TrainingJobDefinition"]]
    return [
        {
            "name": each.get("DefinitionName", ""),
            "metric": objective["MetricName"],
            "isMaximized": objective["Type"] == "Maximize",
            "axes": list(_axes(each.get("HyperParameterRanges") or config.get("ParameterRanges", {}))),
            "static": dict(_static_values(each)),
        }
        for each in several
        if (objective := each.get("TuningObjective") or config["HyperParameterTuningJobObjective"])
    ]


def limits_of(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits and completion criteria of a tuning job. None where there is none."""
    config = description["HyperParameterTuningJobConfig"]
    limits, criteria = config["ResourceLimits"], config.get("TuningJobCompletionCriteria", _NO_LIMIT)
    return {
        "trials": limits.get("MaxNumberOfTrainingJobs"),
        "parallel": limits["MaxParallelTrainingJobs"],
        "runtime": limits.get("MaxRuntimeInSeconds"),
        "target": criteria.get("TargetObjectiveMetricValue"),
        "withoutImprovement": criteria.get("BestObjectiveNotImproving", _NO_LIMIT).get(
            "MaxNumberOfTrainingJobsNotImproving"
        ),
        "onConvergence": criteria.get("ConvergenceDetected", _NO_LIMIT).get("CompleteOnConvergence") == "Enabled",
    }


def parents_of(description: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the tuning jobs that this one started from, and how; None if it started from none."""
    config = description.get("WarmStartConfig")
    if config is None:
        return None
    names = [each["HyperParameterTuningJobName"] for each in config["ParentHyperParameterTuningJobs"]]
    return {"names": names, "isIdentical": config["WarmStartType"] == "IdenticalDataAndAlgorithm"}


def _axes(ranges: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for member, kind in _KINDS.items():
        for each in ranges.get(member, ()):
            if kind is RangeKind.CATEGORICAL:
                yield {"name": each["Name"], "kind": kind.lower(), "values": list(each["Values"])}
                continue
            scaling = Scaling(each.get("ScalingType", "Auto"))
            low, high = float(each["MinValue"]), float(each["MaxValue"])
            used = scaling_of(HyperparameterRange(each["Name"], kind, low, high, scaling))
            yield {"name": each["Name"], "kind": kind.lower(), "low": low, "high": high, "scaling": used.value}


def _static_values(definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the static hyperparameters that a person chose. The others say where a program is and how it is run."""
    for name, value in definition.get("StaticHyperParameters", {}).items():
        if not name.startswith(("sagemaker_", "_")):
            yield name, value
