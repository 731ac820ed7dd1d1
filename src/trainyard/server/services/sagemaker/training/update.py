"""UpdateTrainingJob: profiling and remote debugging of a running job, and how long its warm pool is kept."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.status import SecondaryStatus, Status
from trainyard.foundation.jobs.training.job import PoolEnd, TrainingJob
from trainyard.foundation.jobs.training.plan import ProfilerPlan
from trainyard.foundation.jobs.training.pools import PoolStatus, pool_of
from trainyard.link.warm import dismiss_workers, extend_workers
from trainyard.server.jobs.instance_jobs import request_of
from trainyard.server.jobs.profile_evaluations import ensure_evaluation
from trainyard.server.jobs.training import KIND, change_to, events_of, job_of
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.training.engine_assignment import require_warm_workers
from trainyard.server.services.sagemaker.training.profiler import (
    notes_on_profiler,
    profiler_of,
    require_enabled,
    require_profiler_locations,
    unavailable_rules,
)
from trainyard.server.services.sagemaker.training.unsupported import require_served
from trainyard.server.services.visibility import load_visible
from trainyard.wire.fault import Fault

_PROFILING = ("ProfilerConfig", "ProfilerRuleConfigurations")
_MEMBERS = (*_PROFILING, "ResourceConfig", "RemoteDebugConfig")
_DEBUGGABLE = (SecondaryStatus.DOWNLOADING, SecondaryStatus.TRAINING)


def update_training_job(call: Call, shape: Shape) -> Shape:
    if not any(member in shape for member in _MEMBERS):
        raise InvalidRequest(f"The request changes nothing; give one of {', '.join(_MEMBERS)}.")
    require_served({member: value for member, value in shape.items() if member != "ResourceConfig"}, action="update")
    while True:
        resource = load_visible(call, KIND, shape["TrainingJobName"])
        job = job_of(resource)
        _require_state(job, shape)
        _require_warm_workers(call, job, shape)
        request = _updated_request(resource, shape)
        after = _updated_job(call, job, shape, request)
        if after.plan.profiler != job.plan.profiler:
            ensure_evaluation(call.yard.records, after, now=call.now)
        if _apply(call, resource, after=after, request=request):
            call.yard.compute.wake(resource.id)
            _notify_warm_workers(call, job.account, shape)
            return {"TrainingJobArn": job.arn}


OPERATIONS: Operations = {"UpdateTrainingJob": update_training_job}


def _require_state(job: TrainingJob, shape: Shape) -> None:
    if any(member in shape for member in _PROFILING) and job.status is not Status.IN_PROGRESS:
        message = f"The request was rejected because the training job is in status {job.status}."
        raise Fault("ValidationException", message)
    if "RemoteDebugConfig" in shape and job.secondary not in _DEBUGGABLE:
        raise Fault(
            "ValidationException",
            f"The request was rejected because the training job is in secondary status {job.secondary}; "
            "RemoteDebugConfig can be changed while it is Downloading or Training.",
        )


def _require_warm_workers(call: Call, job: TrainingJob, shape: Shape) -> None:
    seconds = shape.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds", 0)
    engines = call.yard.compute.engines
    # If the engine is missing, this cannot be checked.
    if job.plan.engine in engines:
        require_warm_workers(replace(job.plan, keep_alive_s=seconds), engines[job.plan.engine])


def _updated_job(call: Call, job: TrainingJob, shape: Shape, request: Shape) -> TrainingJob:
    after = job
    if any(member in shape for member in _PROFILING):
        after = _with_profiler(call, job, shape, request)
    if "ResourceConfig" in shape:
        after = _with_keep_alive(after, shape["ResourceConfig"]["KeepAlivePeriodInSeconds"], now=call.now)
    return after


def _with_profiler(call: Call, job: TrainingJob, shape: Shape, request: Shape) -> TrainingJob:
    """Return the job with the profiler that the updated request asks for. The controller tells running instances."""
    known = job.plan.profiler
    if known is None:
        return job.with_notes("The job is not profiled: it was created by a version of the yard without a profiler.")
    _require_same_location(known, job.name, shape)
    require_profiler_locations(shape, call.yard.objects, account=job.account)
    plan = profiler_of({**request, "TrainingJobName": job.name}, call.yard.compute.gateways)
    if "ProfilerRuleConfigurations" in shape:
        require_enabled(plan)
    # The folder of the program was made when it started.
    plan = replace(plan, path=known.path, version=known.version)
    if plan == known:
        return job
    unavailable = {state.name: state for state in (*unavailable_rules(plan, now=call.now), *job.profiler_rules)}
    changed = replace(plan, version=plan.version + 1)
    after = replace(job, plan=replace(job.plan, profiler=changed), profiler_rules=tuple(unavailable.values()))
    return after.with_notes(*notes_on_profiler({member: shape[member] for member in _PROFILING if member in shape}))


def _require_same_location(plan: ProfilerPlan, name: str, shape: Shape) -> None:
    """Raise InvalidRequest for another location of profiles: as on AWS, a job that has one keeps it."""
    given = shape.get("ProfilerConfig", {}).get("S3OutputPath")
    if given is not None and plan.is_exported and f"{given.rstrip('/')}/{name}/profiler-output" != plan.uri:
        raise InvalidRequest(
            f'ProfilerConfig.S3OutputPath is "{given}" and cannot be changed: profiles of the training job are stored '
            f"at {plan.uri}."
        )


def _with_keep_alive(job: TrainingJob, seconds: int, *, now: datetime) -> TrainingJob:
    """Return the job with another keep-alive period. A warm pool that this ends is ended now."""
    after = replace(job, plan=replace(job.plan, keep_alive_s=seconds))
    if not job.is_final:
        return after
    pool = pool_of(job, now=now)
    if pool is None or pool.status is not PoolStatus.AVAILABLE:
        state = "has no warm pool" if pool is None else f"has a warm pool that is {pool.status}"
        raise InvalidRequest(
            f"The request was rejected because the training job {state}; KeepAlivePeriodInSeconds can be changed until "
            "the job has ended, and then while its warm pool is Available."
        )
    remaining = pool_of(after, now=now)
    is_over = remaining is None or remaining.status is not PoolStatus.AVAILABLE
    return replace(after, pool_end=PoolEnd(now)) if is_over else after


def _updated_request(resource: Resource, shape: Shape) -> Shape:
    """Return the stored request of the job with the updated members."""
    request = dict(request_of(resource))
    if "ProfilerConfig" in shape:
        # A change of the profiler's configuration turns the profiler on.
        request["ProfilerConfig"] = {
            **request.get("ProfilerConfig", {}),
            "DisableProfiler": False,
            **shape["ProfilerConfig"],
        }
    if "ProfilerRuleConfigurations" in shape:
        known = request.get("ProfilerRuleConfigurations", [])
        request["ProfilerRuleConfigurations"] = _with_rules(known, shape["ProfilerRuleConfigurations"])
    if "ResourceConfig" in shape:
        request["ResourceConfig"] = {**request["ResourceConfig"], **shape["ResourceConfig"]}
    if "RemoteDebugConfig" in shape:
        request["RemoteDebugConfig"] = shape["RemoteDebugConfig"]
    return request


def _with_rules(known: list[dict[str, Any]], given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the known rules, with given rules added or replacing those of the same name."""
    return list({rule["RuleConfigurationName"]: rule for rule in (*known, *given)}.values())


def _notify_warm_workers(call: Call, account: str, shape: Shape) -> None:
    """Tell the warm workers of the account how long to stay, or to leave."""
    seconds, warm = shape.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds"), call.yard.compute.warm
    if seconds is None or warm is None:
        return
    if seconds:
        extend_workers(warm, account, seconds=seconds)
    else:
        dismiss_workers(warm, account)


def _apply(call: Call, resource: Resource, *, after: TrainingJob, request: Shape) -> bool:
    change = change_to(resource, after)
    body = {**(change.body or {}), "request": request}
    return (
        call.yard.records.apply(
            resource,
            replace(change, body=body, is_quiet=False),
            now=call.now,
            events=events_of(job_of(resource), after),
        )
        is not None
    )
