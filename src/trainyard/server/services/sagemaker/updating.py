"""UpdateTrainingJob: profiling and remote debugging of a job that runs, and how long what it leaves is kept warm."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs import PoolEnd, SecondaryStatus, Status, TrainingJob
from trainyard.foundation.pools import PoolStatus, pool_of
from trainyard.link.warm import keep_all, leave_all
from trainyard.server.jobs import KIND, change_to, events_of, job_of, request_of
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.assignment import require_warm_workers
from trainyard.server.services.sagemaker.unserved import notes_on, require_served
from trainyard.server.services.visible import load_visible
from trainyard.wire.fault import Fault

_PROFILING = ("ProfilerConfig", "ProfilerRuleConfigurations")
_MEMBERS = (*_PROFILING, "ResourceConfig", "RemoteDebugConfig")
_DEBUGGED = (SecondaryStatus.DOWNLOADING, SecondaryStatus.TRAINING)


def update_training_job(call: Call, shape: Shape) -> Shape:
    if not any(member in shape for member in _MEMBERS):
        raise InvalidRequest(f"The request changes nothing; give one of {', '.join(_MEMBERS)}.")
    require_served({member: value for member, value in shape.items() if member != "ResourceConfig"}, doing="update")
    while True:
        resource = load_visible(call, KIND, shape["TrainingJobName"])
        job = job_of(resource)
        _require_state(job, shape)
        _require_warm_workers(call, job, shape)
        if _apply(call, resource, after=_changed(job, shape, now=call.now), request=_request(resource, shape)):
            call.yard.workshop.wake(resource.id)
            _tell_workers(call, job.account, shape)
            return {"TrainingJobArn": job.arn}


OPERATIONS: Operations = {"UpdateTrainingJob": update_training_job}


def _require_state(job: TrainingJob, shape: Shape) -> None:
    if any(member in shape for member in _PROFILING) and job.status is not Status.IN_PROGRESS:
        message = f"The request was rejected because the training job is in status {job.status}."
        raise Fault("ValidationException", message)
    if "RemoteDebugConfig" in shape and job.secondary not in _DEBUGGED:
        raise Fault(
            "ValidationException",
            f"The request was rejected because the training job is in secondary status {job.secondary}; "
            "RemoteDebugConfig can be changed while it is Downloading or Training.",
        )


def _require_warm_workers(call: Call, job: TrainingJob, shape: Shape) -> None:
    seconds = shape.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds", 0)
    engines = call.yard.workshop.engines
    if job.plan.engine in engines:  # else nobody can tell
        require_warm_workers(replace(job.plan, keep_alive_s=seconds), engines[job.plan.engine])


def _changed(job: TrainingJob, shape: Shape, *, now: datetime) -> TrainingJob:
    noted = job.noted(*notes_on({member: shape[member] for member in _PROFILING if member in shape}))
    if "ResourceConfig" not in shape:
        return noted
    return _kept(noted, shape["ResourceConfig"]["KeepAlivePeriodInSeconds"], now=now)


def _kept(job: TrainingJob, seconds: int, *, now: datetime) -> TrainingJob:
    """The job with another time for its warm pool; one that is over with it ends now."""
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
    still = pool_of(after, now=now)
    is_over = still is None or still.status is not PoolStatus.AVAILABLE
    return replace(after, pool_end=PoolEnd(now)) if is_over else after


def _request(resource: Resource, shape: Shape) -> Shape:
    """What the create call asked for, as if it had asked for this."""
    request = dict(request_of(resource))
    if "ProfilerConfig" in shape:
        # Who changes how a job is profiled means it to be profiled.
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
    """The known rules and the given ones, which replace those of their names."""
    return list({rule["RuleConfigurationName"]: rule for rule in (*known, *given)}.values())


def _tell_workers(call: Call, account: str, shape: Shape) -> None:
    """What is kept warm is the account's workers: they stay as long as its jobs ask, or leave."""
    seconds, warm = shape.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds"), call.yard.workshop.warm
    if seconds is None or warm is None:
        return
    if seconds:
        keep_all(warm, account, seconds=seconds)
    else:
        leave_all(warm, account)


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
