"""A study of many trials, stored in the records of a running yard as its controller would store it."""

import math
import random
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from trainyard.foundation.jobs.tuning import (
    Direction,
    HyperbandResources,
    HyperparameterRange,
    Objective,
    RangeKind,
    Scaling,
    StopCause,
    StrategyKind,
    TrialStatus,
    TuningDefinition,
    TuningJob,
    TuningPlan,
    TuningStatus,
    TuningTrial,
)
from trainyard.insight.tuning.completion import progress_of
from trainyard.server.jobs.tuning import draft_of, trial_draft, tuning_job_arn
from trainyard.server.records.sql import open_records
from trainyard.testing.yard import RunningYard

RANGES = (
    HyperparameterRange("lr", RangeKind.CONTINUOUS, 1e-5, 1e-1, Scaling.LOGARITHMIC),
    HyperparameterRange("layers", RangeKind.INTEGER, 1, 8),
    HyperparameterRange("optimizer", RangeKind.CATEGORICAL, values=('"adam"', '"sgd"', '"lamb"')),
    HyperparameterRange("dropout", RangeKind.CONTINUOUS, 0.0, 0.5),
    HyperparameterRange("momentum", RangeKind.CONTINUOUS, 0.5, 0.999, Scaling.REVERSE_LOGARITHMIC),
    HyperparameterRange("batch_size", RangeKind.INTEGER, 16, 512),
)
SLOTS, EPOCHS, TRIAL_S = 4, 27, 90.0
BEGAN = datetime(2026, 6, 1, 8, tzinfo=UTC)
_KINDS = {
    RangeKind.CONTINUOUS: "ContinuousParameterRanges",
    RangeKind.INTEGER: "IntegerParameterRanges",
    RangeKind.CATEGORICAL: "CategoricalParameterRanges",
}


def store_study(
    yard: RunningYard,
    name: str,
    *,
    trials: int,
    definitions: tuple[str, ...] = ("",),
    is_hyperband: bool = False,
    parent: str = "",
) -> None:
    """Store an ended study. Every ninth trial failed, and the worse half of the others was stopped early."""
    account = yard.credentials.account
    tuned = tuple(TuningDefinition(each, Objective("loss", Direction.MINIMIZE), RANGES) for each in definitions)
    plan = TuningPlan(
        StrategyKind.HYPERBAND if is_hyperband else StrategyKind.BAYESIAN,
        tuned,
        max_parallel=SLOTS,
        max_trials=trials,
        resources=HyperbandResources(1, EPOCHS) if is_hyperband else None,
    )
    done = study_trials(name, trials, definitions)
    progress = progress_of(plan, done)
    last = done[-1].ended_at
    job = TuningJob(
        name,
        tuning_job_arn(yard.credentials.region, account, name),
        account,
        yard.credentials.region,
        plan,
        BEGAN,
        status=TuningStatus.COMPLETED,
        planned=trials,
        measured=progress.measured,
        best=progress.best,
        since_best=progress.since_best,
        ended_at=last,
        stop_reason="All training jobs that it may have were started.",
    )
    with closing(open_records(f"sqlite:///{yard.home.records_file}")) as records:
        # It has ended, so no controller may take it up.
        draft = replace(draft_of(job, _request(name, plan, parent=parent), tags={}), due_at=None)
        stored = records.create(draft, now=BEGAN)
        for each in done:
            records.create(trial_draft(stored, each), now=each.ended_at or BEGAN)


def study_trials(name: str, count: int, definitions: tuple[str, ...] = ("",)) -> list[TuningTrial]:
    """Return the trials of the study that `store_study` stores."""
    chance = random.Random(7)
    free = [BEGAN] * SLOTS
    return [
        _trial(name, number, definitions[number % len(definitions)], chance, free) for number in range(1, count + 1)
    ]


def _trial(name: str, number: int, definition: str, chance: random.Random, free: list[datetime]) -> TuningTrial:
    values = {
        "lr": repr(10 ** chance.uniform(-5, -1)),
        "layers": str(chance.randint(1, 8)),
        "optimizer": chance.choice(RANGES[2].values),
        "dropout": repr(chance.uniform(0.0, 0.5)),
        "momentum": repr(1 - 10 ** chance.uniform(-3, math.log10(0.5))),
        "batch_size": str(chance.randint(16, 512)),
    }
    loss = 0.1 + 0.2 * (math.log10(float(values["lr"])) + 3) ** 2 + (0.3 if "sgd" in values["optimizer"] else 0.0)
    loss += 0.02 * abs(int(values["layers"]) - 5) + abs(chance.gauss(0, 0.02))
    is_failed, is_stopped = number % 9 == 0, loss > 0.6
    epochs = EPOCHS if not (is_stopped or is_failed) else chance.randint(2, 9)
    curve = tuple(loss + 2.0 * math.exp(-epoch / 5) + chance.gauss(0, 0.01) for epoch in range(1, epochs + 1))
    slot = free.index(min(free))
    begin = free[slot] + timedelta(seconds=1)
    free[slot] = begin + timedelta(seconds=TRIAL_S * epochs / EPOCHS)
    status = TrialStatus.FAILED if is_failed else TrialStatus.STOPPED if is_stopped else TrialStatus.COMPLETED
    why = "CUDA out of memory." if is_failed else "loss was worse than the median of the others." if is_stopped else ""
    return TuningTrial(
        number,
        f"{name}-{number:03}-0",
        definition,
        values,
        status,
        job_id=f"{name}-{number}",
        objective=None if is_failed else curve[-1],
        curve=curve,
        cause=StopCause.EARLY if is_stopped and not is_failed else None,
        why=why,
        created_at=begin,
        started_at=begin,
        ended_at=free[slot],
    )


def _request(name: str, plan: TuningPlan, *, parent: str) -> dict[str, object]:
    ranges: dict[str, list[dict[str, object]]] = {member: [] for member in _KINDS.values()}
    for each in RANGES:
        bounds = {"MinValue": repr(each.low), "MaxValue": repr(each.high), "ScalingType": str(each.scaling)}
        shape = {"Values": list(each.values)} if each.kind is RangeKind.CATEGORICAL else bounds
        ranges[_KINDS[each.kind]].append({"Name": each.name, **shape})
    objective = {"Type": "Minimize", "MetricName": "loss"}
    is_single = len(plan.definitions) == 1
    common = {
        "StaticHyperParameters": {"epochs": str(EPOCHS)},
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    }
    config: dict[str, object] = {
        "Strategy": str(plan.strategy),
        "ResourceLimits": {"MaxNumberOfTrainingJobs": plan.max_trials, "MaxParallelTrainingJobs": SLOTS},
    }
    request: dict[str, object] = {"HyperParameterTuningJobName": name, "HyperParameterTuningJobConfig": config}
    if parent:
        parents = [{"HyperParameterTuningJobName": parent}]
        request["WarmStartConfig"] = {
            "ParentHyperParameterTuningJobs": parents,
            "WarmStartType": "IdenticalDataAndAlgorithm",
        }
    if is_single:
        config |= {"HyperParameterTuningJobObjective": objective, "ParameterRanges": ranges}
        return request | {"TrainingJobDefinition": common}
    several = [
        common | {"DefinitionName": each.name, "TuningObjective": objective, "HyperParameterRanges": ranges}
        for each in plan.definitions
    ]
    return request | {"TrainingJobDefinitions": several}
