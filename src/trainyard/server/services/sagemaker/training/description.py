"""Training jobs in the form of the wire."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from trainyard.foundation.jobs.attempts import MetricSummary, RuleState
from trainyard.foundation.jobs.result_locations import MODEL, result_uri
from trainyard.foundation.jobs.status import Transition
from trainyard.foundation.jobs.training.job import TrainingJob, bill_of
from trainyard.foundation.jobs.training.rules import profiler_rule_states, rule_states
from trainyard.server.jobs.instance_jobs import request_of
from trainyard.server.jobs.training import job_of, outline_of, rule_job_arn
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.training.instances import pool_shape
from trainyard.server.services.sagemaker.training.profiler import DEFAULT_INTERVAL_MS

# The longest reason on the wire; the records have the whole text.
REASON_LENGTH = 1024

_ECHOED = (
    "HyperParameters",
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "ResourceConfig",
    "VpcConfig",
    "CheckpointConfig",
    "DebugHookConfig",
    "DebugRuleConfigurations",
    "ExperimentConfig",
    "TensorBoardOutputConfig",
    "ProfilerConfig",
    "ProfilerRuleConfigurations",
    "Environment",
    "RetryStrategy",
    "RemoteDebugConfig",
    "InfraCheckConfig",
    "TuningJobArn",
)
_RULES = ("DebugRuleConfigurations", "ProfilerRuleConfigurations")
_SWITCHES = ("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining")


def training_job_description(resource: Resource, *, now: datetime) -> Shape:
    """Return the answer of DescribeTrainingJob."""
    job, request = job_of(resource), request_of(resource)
    shape: Shape = {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "ModelArtifacts": {"S3ModelArtifacts": _model(job)},
        "TrainingJobStatus": job.status,
        "SecondaryStatus": job.secondary,
        "SecondaryStatusTransitions": [_transition(step) for step in job.transitions],
        # The SDK's attach reads the key id in any case.
        "OutputDataConfig": {"KmsKeyId": "", **request["OutputDataConfig"]},
        "StoppingCondition": {"MaxRuntimeInSeconds": job.plan.max_runtime_s, **request["StoppingCondition"]},
        "CreationTime": job.created_at,
        "LastModifiedTime": resource.modified_at,
        "ProfilingStatus": "Enabled" if job.plan.profiler and job.plan.profiler.is_enabled else "Disabled",
        **{switch: request.get(switch, False) for switch in _SWITCHES},
        **{member: request[member] for member in _ECHOED if member in request},
        **_with_defaults(request),
    }
    return shape | _times(job) | _results(job) | _pool(job, now)


def _with_defaults(request: Mapping[str, Any]) -> Shape:
    """Return members with what AWS adds to them when the request leaves it out."""
    shape: Shape = {
        member: [{"VolumeSizeInGB": 0, **rule} for rule in request[member]] for member in _RULES if member in request
    }
    if "ProfilerConfig" in request and not request["ProfilerConfig"].get("DisableProfiler"):
        interval = {"ProfilingIntervalInMilliseconds": DEFAULT_INTERVAL_MS}
        shape["ProfilerConfig"] = interval | request["ProfilerConfig"]
    return shape


def training_job_summary(resource: Resource, *, now: datetime) -> Shape:
    """Return the entry of a job in ListTrainingJobs."""
    job = outline_of(resource)
    shape: Shape = {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "CreationTime": job.created_at,
        "LastModifiedTime": resource.modified_at,
        "TrainingJobStatus": job.status,
        "SecondaryStatus": job.secondary,
    }
    return shape | ({"TrainingEndTime": job.ended_at} if job.ended_at else {}) | _pool(job, now)


def _model(job: TrainingJob) -> str:
    """Return the location of the model. As on AWS, it is given whether or not the object exists."""
    if MODEL in job.artifacts:
        return job.artifacts[MODEL].uri
    return result_uri(job.plan.output_path, job.name, MODEL, is_compressed=job.plan.is_output_compressed)


def _transition(step: Transition) -> Shape:
    shape: Shape = {"Status": step.status, "StartTime": step.started_at, "StatusMessage": step.message}
    return shape | ({"EndTime": step.ended_at} if step.ended_at else {})


def _times(job: TrainingJob) -> Shape:
    shape: Shape = {}
    if job.started_at is not None:
        shape["TrainingStartTime"] = job.started_at
    if job.ended_at is not None:
        shape["TrainingEndTime"] = job.ended_at
    bill = bill_of(job)
    if bill is not None:
        shape |= {"TrainingTimeInSeconds": bill.trained_s, "BillableTimeInSeconds": bill.billed_s}
    return shape


def _results(job: TrainingJob) -> Shape:
    shape: Shape = {}
    if job.failure:
        shape["FailureReason"] = job.failure[:REASON_LENGTH]
    if states := rule_states(job):
        shape["DebugRuleEvaluationStatuses"] = [_rule(job, state) for state in states]
    if states := profiler_rule_states(job):
        shape["ProfilerRuleEvaluationStatuses"] = [_rule(job, state) for state in states]
    if metrics := [_final(name, metric) for name, metric in job.metrics.items() if metric.count]:
        shape["FinalMetricDataList"] = metrics
    return shape


def _rule(job: TrainingJob, state: RuleState) -> Shape:
    shape: Shape = {
        "RuleConfigurationName": state.name,
        "RuleEvaluationJobArn": rule_job_arn(job, state.name),
        "RuleEvaluationStatus": state.status,
        "LastModifiedTime": state.at,
    }
    details = _details(state)
    return shape | ({"StatusDetails": details} if details else {})


def _details(state: RuleState) -> str:
    """Return what the instances reported of a rule, and how many steps it missed."""
    is_unreported = state.dropped and "dropped" not in state.details
    missed = f" {state.dropped} steps were dropped and not evaluated." if is_unreported else ""
    return f"{state.details[: REASON_LENGTH - len(missed)]}{missed}".strip()


def _pool(job: TrainingJob, now: datetime) -> Shape:
    pool = pool_shape(job, now=now)
    return {"WarmPoolStatus": pool} if pool else {}


def _final(name: str, metric: MetricSummary) -> Shape:
    return {"MetricName": name, "Value": metric.value, "Timestamp": metric.at}
