"""DescribeJob, DescribeTuningJob, FollowJob and InterruptJob: what AWS's operations do not tell or do."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from trainyard.foundation.errors import Conflict, InvalidRequest
from trainyard.foundation.jobs.attempts import Attempt, InstanceState
from trainyard.foundation.jobs.instance_job import InstanceJob, whole_seconds_of
from trainyard.foundation.jobs.status import ON_INSTANCES, SecondaryStatus, Status
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.transitions import interrupt
from trainyard.server.jobs.instance_job_kinds import instance_job_of
from trainyard.server.jobs.summaries import summary_of
from trainyard.server.jobs.training import KIND, change_to, job_of
from trainyard.server.jobs.tuning import job_of as tuning_job_of
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.tuning.lifecycle import load_tuning_job
from trainyard.server.services.trainyard.job_list.rows import metric_rows
from trainyard.server.services.trainyard.job_list.waiting import WaitingJobs
from trainyard.server.services.trainyard.job_lookup import load_named_job
from trainyard.server.services.trainyard.queues import shares_of
from trainyard.server.services.trainyard.rules import rules_of
from trainyard.server.services.visibility import load_visible
from trainyard.server.streaming import FollowCursor

HOUR = timedelta(hours=1)

_NOT_STARTED_ADVICE = (
    "Fix what the reason names, which has changed since the job was created, and create the job again."
)


def describe_job(call: Call, shape: Shape) -> Shape:
    """Describe one job: notes, shares, waterfall, attempts, failure card, rules, metrics, price and cost."""
    resource = load_named_job(call, shape)
    job, summary = instance_job_of(resource), summary_of(resource)
    return {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "UserName": call.yard.records.user(job.account).name,
        "Status": job.status,
        "SecondaryStatus": job.secondary,
        "FailureReason": job.failure or None,
        "Notes": [*job.notes, *_missing_engine(call, job)],
        "Engine": job.plan.engine or call.yard.compute.engines.default.name,
        "Shares": shares_of(job),
        "Waterfall": list(waterfall(job)),
        "Attempts": [_attempt(job, attempt) for attempt in job.attempts],
        "FailureCard": failure_card(job),
        "Artifacts": _artifacts(job) if isinstance(job, TrainingJob) else [],
        **_costs(call, job),
        "Rules": rules_of(call, resource, job) if isinstance(job, TrainingJob) else [],
        "Download": _download(job),
        "Metrics": metric_rows(summary.metrics, sorted(summary.metrics)),
        **(WaitingJobs(call.yard).describe(summary) if summary.is_queued else {}),
    }


def describe_tuning_job(call: Call, shape: Shape) -> Shape:
    """Describe one tuning job: notes, reasons, and settings that AWS's shapes have no members for."""
    job = tuning_job_of(load_tuning_job(call, shape))
    return {
        "HyperParameterTuningJobName": job.name,
        "HyperParameterTuningJobArn": job.arn,
        "UserName": call.yard.records.user(job.account).name,
        "Status": str(job.status),
        "Strategy": str(job.plan.strategy),
        "EarlyStopping": str(job.plan.early_stopping),
        "PruningRules": list(job.plan.pruning_rules),
        "RandomSeed": job.plan.seed,
        "Notes": list(job.notes),
        "StopReason": job.stop_reason or None,
        "FailureReason": job.failure or None,
        "PlannedJobs": job.planned,
        "MeasuredJobs": job.measured,
    }


async def follow_job(call: Call, shape: Shape) -> Shape:
    """Stream the statuses, notes and log lines of a job until it ends."""
    resource = await asyncio.to_thread(load_named_job, call, shape)
    cursor = FollowCursor.start(resource.id)
    if "Cursor" in shape:
        cursor = FollowCursor.parse(shape["Cursor"], resource.id)
    elif "Tail" in shape:
        cursor = await call.yard.followers.cursor_before_last(resource, shape["Tail"])
    lines = call.yard.followers.follow(resource, cursor, with_logs=shape.get("Logs", True))
    return {"ContentType": "application/x-ndjson", "Events": lines}


def interrupt_job(call: Call, shape: Shape) -> Shape:
    """Interrupt a running spot job, as a cloud that needs its machine does. The job continues when there is room."""
    while True:
        resource = load_visible(call, KIND, shape["TrainingJobName"])
        job = job_of(resource)
        _require_interruptible(job)
        after = interrupt(job, f"{call.caller.user} interrupted it.")
        if after == job or call.yard.records.apply(resource, change_to(resource, after), now=call.now) is not None:
            call.yard.compute.wake(resource.id)
            return {}


OPERATIONS: Operations = {
    "DescribeJob": describe_job,
    "DescribeTuningJob": describe_tuning_job,
    "FollowJob": follow_job,
    "InterruptJob": interrupt_job,
}


def waterfall(job: InstanceJob) -> Iterator[Shape]:
    """Yield the phases of the last attempt in order of start; queue and placement come first."""
    if not job.attempts:
        yield _phase("queue", job.created_at, job.ended_at)
        return
    last = job.attempts[-1]
    waited_since = job.attempts[-2].ended_at if len(job.attempts) > 1 else job.created_at
    phases = sorted(
        ((phase, each.name) for each in last.instances for phase in each.phases),
        key=lambda found: (found[0].started_at, found[0].ended_at),
    )
    yield _phase("queue", waited_since or last.placed_at, last.placed_at)
    yield _phase("place", last.placed_at, phases[0][0].started_at if phases else last.ended_at)
    for phase, instance in phases:
        yield _phase(phase.name, phase.started_at, phase.ended_at) | {"Instance": instance}


def failure_card(job: InstanceJob) -> Shape | None:
    """Return why a job failed. A job that never started has no card from an instance."""
    if job.card:
        return _card(job.card)
    if not job.failure:
        return None
    return {
        "Class": "user error",
        "Summary": job.failure.splitlines()[0],
        "LastLines": [],
        "Advice": [_NOT_STARTED_ADVICE],
    }


def _missing_engine(call: Call, job: InstanceJob) -> Iterator[str]:
    engine = job.plan.engine
    if engine and not job.is_final and engine not in call.yard.compute.engines:
        yield f"This yard was started without the engine {engine}; the job continues when the yard has it again."


def _download(job: InstanceJob) -> Shape | None:
    """Return how much of their data the instances have, while they download it."""
    attempt = job.attempt
    if attempt is None or job.secondary is not SecondaryStatus.DOWNLOADING:
        return None
    total_bytes = sum(each.download_bytes for each in attempt.instances)
    done_bytes = sum(each.downloaded_bytes for each in attempt.instances)
    return {"DoneBytes": done_bytes, "TotalBytes": total_bytes} if total_bytes else None


def _phase(name: str, started_at: datetime, ended_at: datetime | None) -> Shape:
    return {"Phase": name, "StartTime": started_at, "EndTime": ended_at}


def _resumed_after(job: InstanceJob, attempt: Attempt) -> timedelta | None:
    """Return how long a job waited after an interrupted attempt; None while it still waits."""
    following = next((each for each in job.attempts if each.number == attempt.number + 1), None)
    if following is None or attempt.ended_at is None or not attempt.interruption:
        return None
    return following.placed_at - attempt.ended_at


def _attempt(job: InstanceJob, attempt: Attempt) -> Shape:
    resumed_after = _resumed_after(job, attempt)
    return {
        "Number": attempt.number,
        "StartTime": attempt.placed_at,
        "EndTime": attempt.ended_at,
        "TrainingTimeInSeconds": job.time_of(attempt).total_seconds() if attempt.ended_at else None,
        "FailureReason": attempt.failure or None,
        "InterruptionReason": attempt.interruption or None,
        "ResumedAfterInSeconds": resumed_after.total_seconds() if resumed_after is not None else None,
        "Instances": [_instance(each) for each in attempt.instances],
    }


def _instance(instance: InstanceState) -> Shape:
    return {
        "Name": instance.name,
        "Outcome": instance.outcome,
        "ExitCode": instance.exit_code,
        "ExitSignal": instance.exit_signal,
        "OutOfMemory": instance.is_oom,
        "Reason": instance.reason or None,
    }


def _card(card: Mapping[str, Any]) -> Shape:
    exception: Mapping[str, Any] | None = card.get("exception")
    return {
        "Class": card["kind"],
        "Summary": card.get("summary"),
        "Instance": card.get("instance"),
        "Rank": card.get("rank"),
        "Command": card.get("command"),
        "ExitCode": card.get("exit_code"),
        "Signal": card.get("signal"),
        "Exception": _exception(exception) if exception else None,
        "Location": f"{exception['file']}:{exception['line']}" if exception and "file" in exception else None,
        "LastLines": list(card.get("last_lines", ())),
        "Advice": [card["advice"]] if card.get("advice") else [],
    }


def _exception(exception: Mapping[str, Any]) -> Shape:
    members = ("type", "message", "file", "line", "function", "source")
    return {member.capitalize(): exception.get(member) or None for member in members}


def _artifacts(job: TrainingJob) -> list[Shape]:
    return [
        {"Kind": kind, "S3Uri": artifact.uri, "SizeInBytes": artifact.size} for kind, artifact in job.artifacts.items()
    ]


def _costs(call: Call, job: InstanceJob) -> Shape:
    types = [call.yard.compute.catalog[name] for name in job.plan.instance_types]
    price = sum(each.price_usd(is_spot=job.plan.is_spot) for each in types)
    cost = price * (_time_on_instances(call, job) / HOUR)
    return {"PricePerHour": price, "Cost": cost, "PriceIsSet": any(each.has_set_price for each in types)}


def _time_on_instances(call: Call, job: InstanceJob) -> timedelta:
    """Return how long instances worked on a job, in whole seconds, or have worked on it until now."""
    if job.is_final:
        return timedelta(seconds=whole_seconds_of(job))
    attempt = job.attempt
    if attempt is None:
        return job.time_used
    steps = (step.started_at for step in job.transitions if step.status in ON_INSTANCES)
    began_at = next((at for at in steps if at >= attempt.placed_at), call.now)
    return job.time_used + (call.now - began_at)


def _require_interruptible(job: TrainingJob) -> None:
    if not job.plan.is_spot:
        raise InvalidRequest(
            f"{job.name} is not a spot job, so it cannot be interrupted; `trainyard stop {job.name}` stops it."
        )
    if job.status is not Status.IN_PROGRESS:
        raise Conflict("training job", job.name, f"is {job.status} and cannot be interrupted")
    if job.attempt is None:
        raise Conflict("training job", job.name, f"is {job.secondary} and not running, so it cannot be interrupted")
    if job.secondary is SecondaryStatus.UPLOADING:
        raise Conflict("training job", job.name, "is Uploading its model and about to end, so it cannot be interrupted")
