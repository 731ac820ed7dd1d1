"""CreateHyperParameterTuningJob: whatever would make its training jobs fail is refused at once."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.foundation.errors import AlreadyExists, InvalidRequest, LimitExceeded, NotFound
from trainyard.foundation.extras import YARD_PYTHON, require_extra
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.tuning import RangeKind, TuningDefinition, TuningJob, TuningPlan
from trainyard.server.jobs.instance_jobs import capacity_kind_of, quota_counts_of
from trainyard.server.jobs.quotas import Quotas
from trainyard.server.jobs.tuning import draft_of, job_of, trial_name, tuning_job_arn, tuning_key
from trainyard.server.records.contract import NewEvent, Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.training.built_in_algorithms import refuse_built_in_algorithm
from trainyard.server.services.sagemaker.training.creation import JobOwner, build_training_job
from trainyard.server.services.sagemaker.tuning.autotune import is_autotuned, with_ranges
from trainyard.server.services.sagemaker.tuning.definitions import definition_label, definitions_of
from trainyard.server.services.sagemaker.tuning.instance_choice import choose_resources
from trainyard.server.services.sagemaker.tuning.plan import plan_of
from trainyard.server.services.sagemaker.tuning.ranges import combinations, notes_on_ranges
from trainyard.server.services.sagemaker.tuning.trial_requests import definition_in, trial_request
from trainyard.server.services.sagemaker.tuning.warm_start import warm_start_of
from trainyard.server.services.tag_rules import require_tags
from trainyard.wire.fault import Fault


def create_hyper_parameter_tuning_job(call: Call, shape: Shape) -> Shape:
    tags = {tag["Key"]: tag["Value"] for tag in shape.get("Tags", ())}
    require_tags(tags)
    require_extra("tuning", where=YARD_PYTHON)
    request = with_ranges({member: value for member, value in shape.items() if member != "Tags"})
    _refuse_built_in_algorithms(call, request)
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
        site=call.yard.compute.site,
        notes=tuple(dict.fromkeys(_notes(call, request, plan=plan, tags=tags))),
    )
    created = _store_job(call, job, request=request, tags=tags)
    call.yard.compute.wake(created.id)
    return {"HyperParameterTuningJobArn": job.arn}


OPERATIONS: Operations = {"CreateHyperParameterTuningJob": create_hyper_parameter_tuning_job}


def _refuse_built_in_algorithms(call: Call, request: Shape) -> None:
    """Refuse built-in algorithms first: they define their metrics themselves, so another error would mislead."""
    one = [request["TrainingJobDefinition"]] if "TrainingJobDefinition" in request else []
    for each in (*one, *request.get("TrainingJobDefinitions", ())):
        refuse_built_in_algorithm(
            call.yard.compute, each["AlgorithmSpecification"], each.get("StaticHyperParameters", {})
        )


def _notes(call: Call, request: Shape, *, plan: TuningPlan, tags: Mapping[str, str]) -> Iterator[str]:
    """Yield notes on the ranges and on the training jobs. One training job of each definition is checked."""
    yield from _repetition_notes(plan)
    for definition in plan.definitions:
        yield from notes_on_ranges(definition.ranges)
        job = _build_sample_job(call, request, definition=definition, plan=plan, tags=tags)
        yield from job.notes
        yield from _quota_notes(call, job, max_parallel=plan.max_parallel)


def _repetition_notes(plan: TuningPlan) -> Iterator[str]:
    counts = [combinations(each.ranges) for each in plan.definitions]
    total = sum(count for count in counts if count is not None)
    if None not in counts and plan.max_trials is not None and plan.max_trials > total:
        yield f"The ranges have {total} combinations, fewer than {plan.max_trials} training jobs; some are repeated."


def _build_sample_job(
    call: Call, request: Shape, *, definition: TuningDefinition, plan: TuningPlan, tags: Mapping[str, str]
) -> TrainingJob:
    """Build a possible training job, checked like a create call."""
    owner = JobOwner(call.yard, call.account, call.region, call.now)
    given = definition_in(request, definition.name)
    try:
        shape = trial_request(
            given,
            _sample_values(definition),
            name=trial_name(request["HyperParameterTuningJobName"], "", 1),
            metric=definition.objective.metric,
            resources=choose_resources(owner, given, tags=tags),
            pruning_rules=plan.pruning_rules,
        )
        return build_training_job(owner, {**shape, "Tags": [{"Key": key, "Value": tags[key]} for key in tags]})
    except InvalidRequest as error:
        raise InvalidRequest(f"{definition_label(definition)} cannot be run: {error.message}") from error


def _sample_values(definition: TuningDefinition) -> Mapping[str, str]:
    """Return valid values of the tuned hyperparameters for a check."""
    return {
        each.name: each.values[0]
        if each.values
        else repr(int(each.low) if each.kind is RangeKind.INTEGER else each.low)
        for each in definition.ranges
    }


def _quota_notes(call: Call, job: TrainingJob, *, max_parallel: int) -> Iterator[str]:
    """Yield a note if the quotas limit parallel training jobs; LimitExceeded if they do not allow even one."""
    limits = Quotas(call.yard.records).limits(job.account, job.plan.instance_types, kind=capacity_kind_of(job))
    needed = quota_counts_of(job)
    for counter, limit in limits.items():
        if needed[counter] > limit:
            raise LimitExceeded(
                f"Each training job needs {needed[counter]} of {job.plan.instance_type}, but your quota is {limit}, so "
                "none could ever start. Use fewer instances, or ask an administrator to raise the quota; "
                "`trainyard quota list` shows it."
            )
        at_once = limit // needed[counter]
        if at_once < max_parallel:
            yield f"Your quota allows only {at_once} of {max_parallel} parallel training jobs; the others wait."


def _store_job(call: Call, job: TuningJob, *, request: Mapping[str, Any], tags: Mapping[str, str]) -> Resource:
    event = NewEvent("tuning-job.created", {"name": job.name})
    try:
        return call.yard.records.create(draft_of(job, request, tags=tags), now=call.now, event=event)
    except AlreadyExists as error:
        raise _name_in_use(call, job.name) from error


def _name_in_use(call: Call, name: str) -> Fault:
    message = "Hyperparameter tuning job names must be unique within an AWS account and region, whatever their case"
    try:
        arn = job_of(call.yard.records.load(tuning_key(call.account, name))).arn
    except NotFound:
        # The other job was deleted in the meantime.
        return Fault("ResourceInUse", f"{message}; {name} was in use a moment ago. Try again.")
    return Fault("ResourceInUse", f"{message}, and one with this name already exists ({arn}).")
