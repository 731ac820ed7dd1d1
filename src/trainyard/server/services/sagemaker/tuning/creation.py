"""CreateHyperParameterTuningJob: whatever would make its training jobs fail one after the other is refused at once."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.foundation.errors import AlreadyExists, InvalidRequest, LimitExceeded, NotFound
from trainyard.foundation.jobs import TrainingJob
from trainyard.foundation.tuning import Definition, RangeKind, TuningJob, TuningPlan
from trainyard.server.jobs import capacity_kind_of, instances_of
from trainyard.server.quotas import Quotas
from trainyard.server.records.contract import NewEvent, Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.creation import Owner, checked_job
from trainyard.server.services.sagemaker.tuning.autotuning import is_autotuned, with_ranges
from trainyard.server.services.sagemaker.tuning.choosing import chosen
from trainyard.server.services.sagemaker.tuning.definitions import definitions_of, named
from trainyard.server.services.sagemaker.tuning.planning import plan_of
from trainyard.server.services.sagemaker.tuning.ranges import combinations, notes_on_ranges
from trainyard.server.services.sagemaker.tuning.trials import definition_in, trial_request
from trainyard.server.services.sagemaker.tuning.warm_start import warm_start_of
from trainyard.server.services.tag_rules import require_tags
from trainyard.server.tuning import draft_of, trial_name, tuning_job_arn, tuning_job_of, tuning_key
from trainyard.wire.fault import Fault


def create_hyper_parameter_tuning_job(call: Call, shape: Shape) -> Shape:
    tags = {tag["Key"]: tag["Value"] for tag in shape.get("Tags", ())}
    require_tags(tags)
    request = with_ranges({member: value for member, value in shape.items() if member != "Tags"})
    definitions = definitions_of(request)
    warm_start = warm_start_of(request, definitions, records=call.yard.records, account=call.account)
    plan = plan_of(
        request["HyperParameterTuningJobConfig"],
        definitions,
        tags=tags,
        warm_start=warm_start,
        is_autotuned=is_autotuned(request),
    )
    name = request["HyperParameterTuningJobName"]
    job = TuningJob(
        name=name,
        arn=tuning_job_arn(call.region, call.account, name),
        account=call.account,
        region=call.region,
        plan=plan,
        created_at=call.now,
        site=call.yard.workshop.site,
        notes=tuple(dict.fromkeys(_notes(call, request, plan=plan, tags=tags))),
    )
    created = _remembered(call, job, request=request, tags=tags)
    call.yard.workshop.wake(created.id)
    return {"HyperParameterTuningJobArn": job.arn}


OPERATIONS: Operations = {"CreateHyperParameterTuningJob": create_hyper_parameter_tuning_job}


def _notes(call: Call, request: Shape, *, plan: TuningPlan, tags: Mapping[str, str]) -> Iterator[str]:
    """What is to be said of the ranges and of the training jobs, of which one of each definition is checked."""
    yield from _repetition(plan)
    for definition in plan.definitions:
        yield from notes_on_ranges(definition.ranges)
        job = _first_job(call, request, definition=definition, plan=plan, tags=tags)
        yield from job.notes
        yield from _room(call, job, max_parallel=plan.max_parallel)


def _repetition(plan: TuningPlan) -> Iterator[str]:
    counts = [combinations(each.ranges) for each in plan.definitions]
    total = sum(count for count in counts if count is not None)
    if None not in counts and plan.max_trials is not None and plan.max_trials > total:
        yield f"The ranges have {total} combinations, fewer than {plan.max_trials} training jobs; some are tried again."


def _first_job(
    call: Call, request: Shape, *, definition: Definition, plan: TuningPlan, tags: Mapping[str, str]
) -> TrainingJob:
    """A training job that this could begin with, checked as its create call would be."""
    owner = Owner(call.yard, call.account, call.region, call.now)
    given = definition_in(request, definition.name)
    try:
        shape = trial_request(
            given,
            _any_values(definition),
            name=trial_name(request["HyperParameterTuningJobName"], "", 1),
            metric=definition.objective.metric,
            resources=chosen(owner, given, tags=tags),
            pruning_rules=plan.pruning_rules,
        )
        return checked_job(owner, {**shape, "Tags": [{"Key": key, "Value": tags[key]} for key in tags]})
    except InvalidRequest as error:
        raise InvalidRequest(f"{named(definition)} cannot be run: {error.message}") from error


def _any_values(definition: Definition) -> Mapping[str, str]:
    """Values of the hyperparameters that are tuned, as good as any for a check."""
    return {
        each.name: each.values[0]
        if each.values
        else repr(int(each.low) if each.kind is RangeKind.INTEGER else each.low)
        for each in definition.ranges
    }


def _room(call: Call, job: TrainingJob, *, max_parallel: int) -> Iterator[str]:
    """LimitExceeded when the quotas never have room for one training job; a note when not for all at once."""
    limits = Quotas(call.yard.records).limits(job.account, job.plan.instance_types, kind=capacity_kind_of(job))
    needed = instances_of(job)
    for counter, limit in limits.items():
        if needed[counter] > limit:
            raise LimitExceeded(
                f"Each training job needs {needed[counter]} of {job.plan.instance_type}, and your quota is {limit}, so "
                "that none could ever start. Ask for fewer instances, or ask an administrator to raise the quota; "
                "`trainyard quota list` shows it."
            )
        at_once = limit // needed[counter]
        if at_once < max_parallel:
            yield f"Your quota lets {at_once} of its training jobs run at once, not {max_parallel}; the others wait."


def _remembered(call: Call, job: TuningJob, *, request: Mapping[str, Any], tags: Mapping[str, str]) -> Resource:
    event = NewEvent("tuning-job.created", {"name": job.name})
    try:
        return call.yard.records.create(draft_of(job, request, tags=tags), now=call.now, event=event)
    except AlreadyExists as error:
        raise _taken(call, job.name) from error


def _taken(call: Call, name: str) -> Fault:
    message = "Hyperparameter tuning job names must be unique within an AWS account and region, whatever their case"
    try:
        arn = tuning_job_of(call.yard.records.load(tuning_key(call.account, name))).arn
    except NotFound:  # deleted meanwhile
        return Fault("ResourceInUse", f"{message}; {name} was in use a moment ago.")
    return Fault("ResourceInUse", f"{message}, and one with this name already exists ({arn}).")
