"""DescribeJob: what became of a job and why, and what it costs."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from trainyard.foundation.jobs import ON_INSTANCES, Attempt, InstanceState, Status, TrainingJob
from trainyard.server.jobs import KIND, job_of
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.described import described
from trainyard.server.services.trainyard.line import position_of
from trainyard.server.services.trainyard.rules import rules_of
from trainyard.server.services.trainyard.shares import shares_of
from trainyard.server.services.visible import load_visible

HOUR = timedelta(hours=1)

_UNSTARTED = "Correct what the reason names, which has changed since the job was created, and create it again."


def describe_job(call: Call, shape: Shape) -> Shape:
    """Notes, shares, waterfall, attempts, failure card, rules, price and cost of one job."""
    resource = load_visible(call, KIND, shape["TrainingJobName"])
    job = job_of(resource)
    return {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "UserName": call.yard.records.user(job.account).name,
        "Status": job.status,
        "SecondaryStatus": job.secondary,
        "FailureReason": job.failure or None,
        "Notes": [*job.notes, *_missing_engine(call, job)],
        "Engine": job.plan.engine or call.yard.workshop.engines.first.name,
        "Shares": shares_of(job),
        "Waterfall": list(waterfall(job)),
        "Attempts": [_attempt(job, attempt) for attempt in job.attempts],
        "FailureCard": failure_card(job),
        "Artifacts": _artifacts(job),
        **_costs(call, resource, job),
        "Rules": rules_of(call, resource, job),
        "QueuePosition": position_of(call.yard, job) if _is_in_line(job) else None,
    }


OPERATIONS: Operations = {"DescribeJob": describe_job}


def _is_in_line(job: TrainingJob) -> bool:
    return job.status is Status.IN_PROGRESS and job.attempt is None


def waterfall(job: TrainingJob) -> Iterator[Shape]:
    """Where the time of the last attempt went, in the order of start; the queue and the placing come first."""
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


def failure_card(job: TrainingJob) -> Shape | None:
    """Why a job failed; a job that was never started has no instance that could have made a card."""
    if job.card:
        return _card(job.card)
    if not job.failure:
        return None
    return {"Class": "user error", "Summary": job.failure.splitlines()[0], "LastLines": [], "Advice": [_UNSTARTED]}


def _missing_engine(call: Call, job: TrainingJob) -> Iterator[str]:
    engine = job.plan.engine
    if engine and not job.is_final and engine not in call.yard.workshop.engines:
        yield f"This yard was started without the engine {engine}; the job goes on when it has it again."


def _phase(name: str, started_at: datetime, ended_at: datetime | None) -> Shape:
    return {"Phase": name, "StartTime": started_at, "EndTime": ended_at}


def _resumed_after(job: TrainingJob, attempt: Attempt) -> timedelta | None:
    """How long a job was without a place after an attempt that was interrupted; None while it still is."""
    following = next((each for each in job.attempts if each.number == attempt.number + 1), None)
    if following is None or attempt.ended_at is None or not attempt.interruption:
        return None
    return following.placed_at - attempt.ended_at


def _attempt(job: TrainingJob, attempt: Attempt) -> Shape:
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


def _costs(call: Call, resource: Resource, job: TrainingJob) -> Shape:
    types = (call.yard.workshop.catalog[name] for name in job.plan.instance_types)
    price = sum(each.price_usd(is_spot=job.plan.is_spot) for each in types)
    return {"PricePerHour": price, "Cost": price * (_trained(call, resource, job) / HOUR)}


def _trained(call: Call, resource: Resource, job: TrainingJob) -> timedelta:
    """What the bill says of the training time or, while the job goes on, will say if it ended now."""
    if job.is_final:
        return timedelta(seconds=described(resource, now=call.now).get("TrainingTimeInSeconds", 0))
    attempt = job.attempt
    if attempt is None:
        return job.time_used
    steps = (step.started_at for step in job.transitions if step.status in ON_INSTANCES)
    began_at = next((at for at in steps if at >= attempt.placed_at), call.now)
    return job.time_used + (call.now - began_at)
