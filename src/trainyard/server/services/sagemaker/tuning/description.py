"""Tuning jobs and their trials in the form of the wire. The cost does not grow with the number of trials."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from trainyard.foundation.errors import NotFound
from trainyard.foundation.jobs.tuning import (
    Direction,
    EarlyStopping,
    TrialStatus,
    TuningJob,
    TuningTrial,
    WarmStartKind,
)
from trainyard.insight.tuning.completion import measured_value
from trainyard.server.jobs.training import training_job_arn
from trainyard.server.jobs.tuning import TRIAL, job_of, request_of, trial_key, trial_of
from trainyard.server.records.contract import Query, Records, Resource, ResourceId
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.training.description import REASON_LENGTH
from trainyard.server.services.sagemaker.tuning.trial_requests import OBJECTIVE, resource_choices

_ONE, _SEVERAL = "TrainingJobDefinition", "TrainingJobDefinitions"
_ECHOED = ("WarmStartConfig", "Autotune")
_NO_RANGES: Shape = {
    "IntegerParameterRanges": [],
    "ContinuousParameterRanges": [],
    "CategoricalParameterRanges": [],
}
_SWITCHES = ("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining")


def tuning_job_description(records: Records, resource: Resource, *, now: datetime) -> Shape:
    """Return the answer of DescribeHyperParameterTuningJob."""
    job, request = job_of(resource), request_of(resource)
    runtime = (job.ended_at or now) - job.created_at
    shape: Shape = {
        **_summary(records, resource, job=job),
        "HyperParameterTuningJobConfig": _config(job, request["HyperParameterTuningJobConfig"]),
        "ConsumedResources": {"RuntimeInSeconds": int(runtime / timedelta(seconds=1))},
        "TuningJobCompletionDetails": _completion(job),
        **{member: request[member] for member in _ECHOED if member in request},
    }
    if _ONE in request:
        shape[_ONE] = _definition(job, request[_ONE])
    else:
        shape[_SEVERAL] = [_definition(job, each) for each in request[_SEVERAL]]
    if job.failure:
        shape["FailureReason"] = job.failure[:REASON_LENGTH]
    return shape | _bests(records, resource, job=job)


def tuning_job_summary(records: Records, resource: Resource) -> Shape:
    """Return the entry of a job in ListHyperParameterTuningJobs."""
    job, config = job_of(resource), request_of(resource)["HyperParameterTuningJobConfig"]
    summary = _summary(records, resource, job=job)
    return summary | {"Strategy": str(job.plan.strategy), "ResourceLimits": config["ResourceLimits"]}


def trial_shape(job: TuningJob, trial: TuningTrial) -> Shape:
    """Return the entry of a started trial in ListTrainingJobsForHyperParameterTuningJob."""
    shape: Shape = {
        "TrainingJobName": trial.job,
        "TrainingJobArn": training_job_arn(job.region, job.account, trial.job),
        "TuningJobName": job.name,
        "CreationTime": trial.created_at or job.created_at,
        "TrainingJobStatus": str(trial.status),
        "TunedHyperParameters": dict(trial.values),
        "ObjectiveStatus": _objective_status(trial),
    }
    if trial.definition:
        shape["TrainingJobDefinitionName"] = trial.definition
    if trial.started_at is not None:
        shape["TrainingStartTime"] = trial.started_at
    if trial.ended_at is not None:
        shape["TrainingEndTime"] = trial.ended_at
    if trial.status is TrialStatus.FAILED and trial.why:
        shape["FailureReason"] = trial.why[:REASON_LENGTH]
    if (value := objective_of(trial)) is not None:
        objective = job.plan.definition(trial.definition).objective
        shape["FinalHyperParameterTuningJobObjectiveMetric"] = {
            "Type": str(objective.direction),
            "MetricName": objective.metric,
            "Value": value,
        }
    return shape


def objective_of(trial: TuningTrial) -> float | None:
    """Return the last objective of a trial, even while it runs; None if it is not a finite number.

    A failed trial has none: its value could be the best of all and mislead whoever sorts by it.
    """
    if trial.objective is None or trial.status is TrialStatus.FAILED or not math.isfinite(trial.objective):
        return None
    return trial.objective


def _summary(records: Records, resource: Resource, *, job: TuningJob) -> Shape:
    shape: Shape = {
        "HyperParameterTuningJobName": job.name,
        "HyperParameterTuningJobArn": job.arn,
        "HyperParameterTuningJobStatus": str(job.status),
        "CreationTime": job.created_at,
        "LastModifiedTime": resource.modified_at,
        **_counters(records, resource.id, measured=job.measured),
    }
    return shape | ({"HyperParameterTuningEndTime": job.ended_at} if job.ended_at else {})


def _counters(records: Records, parent: ResourceId, *, measured: int) -> Shape:
    counts = {status: records.count(Query(TRIAL, parent=parent, status=status)) for status in TrialStatus}
    ended = counts[TrialStatus.COMPLETED] + counts[TrialStatus.STOPPED] + counts[TrialStatus.FAILED]
    return {
        "TrainingJobStatusCounters": {
            "Completed": counts[TrialStatus.COMPLETED],
            "InProgress": counts[TrialStatus.IN_PROGRESS],
            # All retries happen before a training job counts as failed.
            "RetryableError": 0,
            "NonRetryableError": counts[TrialStatus.FAILED],
            "Stopped": counts[TrialStatus.STOPPED],
        },
        "ObjectiveStatusCounters": {
            "Succeeded": min(measured, ended),
            "Pending": counts[TrialStatus.IN_PROGRESS],
            "Failed": max(0, ended - measured),
        },
    }


def _config(job: TuningJob, given: Mapping[str, Any]) -> Shape:
    """Return the config as requested, with what was chosen. SDKs read early stopping and limits in any case."""
    early, criteria = "Off" if job.plan.early_stopping is EarlyStopping.OFF else "Auto", {}
    if job.plan.completion.on_convergence:
        converged = {"ConvergenceDetected": {"CompleteOnConvergence": "Enabled"}}
        criteria = {"TuningJobCompletionCriteria": converged}
    limits = dict(given["ResourceLimits"])
    if job.plan.max_trials is not None:
        limits["MaxNumberOfTrainingJobs"] = job.plan.max_trials
    config = {"TrainingJobEarlyStoppingType": early, **criteria, **given, "ResourceLimits": limits}
    return config | _ranges(given, "ParameterRanges")


def _ranges(given: Mapping[str, Any], member: str) -> Shape:
    """Return ranges with a list of every kind, even if empty, because SDKs read all of them."""
    return {member: {**_NO_RANGES, **given[member]}} if member in given else {}


def _definition(job: TuningJob, given: Mapping[str, Any]) -> Shape:
    """Return a definition as requested, with what AWS adds and SDKs read: objective, instance type, switches."""
    algorithm = {"MetricDefinitions": [], **given["AlgorithmSpecification"]}
    metric = job.plan.definition(given.get("DefinitionName", "")).objective.metric
    return {
        "ResourceConfig": resource_choices(given)[0],
        **dict.fromkeys(_SWITCHES, False),
        **given,
        **_ranges(given, "HyperParameterRanges"),
        "AlgorithmSpecification": algorithm,
        "StaticHyperParameters": {**given.get("StaticHyperParameters", {}), OBJECTIVE: metric},
    }


def _completion(job: TuningJob) -> Shape:
    shape: Shape = {"NumberOfTrainingJobsObjectiveNotImproving": job.since_best}
    return shape | ({"ConvergenceDetectedTime": job.converged_at} if job.converged_at else {})


def _bests(records: Records, resource: Resource, *, job: TuningJob) -> Shape:
    """Return the best training job and, if the parents had the same data and algorithm, the best of all."""
    own = _best(records, resource)
    shape: Shape = {} if own is None else {"BestTrainingJob": own}
    start = job.plan.warm_start
    if start is None or start.kind is not WarmStartKind.IDENTICAL:
        return shape
    known = [own, *(_best_of_parent(records, ResourceId(parent)) for parent in start.parents)]
    found = [each for each in known if each is not None]
    if not found:
        return shape
    better = max if job.plan.definitions[0].objective.direction is Direction.MAXIMIZE else min
    return {**shape, "OverallBestTrainingJob": better(found, key=_value)}


def _best(records: Records, resource: Resource) -> Shape | None:
    job = job_of(resource)
    if job.best is None:
        return None
    return trial_shape(job, trial_of(records.load(trial_key(resource, job.best))))


def _best_of_parent(records: Records, parent: ResourceId) -> Shape | None:
    try:
        return _best(records, records.load_by_id(parent))
    except NotFound:
        # The parent was deleted in the meantime.
        return None


def _value(best: Shape) -> float:
    value: float = best["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
    return value


def _objective_status(trial: TuningTrial) -> str:
    if not trial.has_ended:
        return "Pending"
    return "Succeeded" if measured_value(trial) is not None else "Failed"
