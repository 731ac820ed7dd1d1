"""Trials of experiments: create, describe, list, update and delete."""

from collections.abc import Sequence
from dataclasses import replace

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.experiments import ExperimentTrial
from trainyard.foundation.plain import to_plain
from trainyard.server.experiments.storage import (
    COMPONENT,
    EXPERIMENT,
    PARENT_TRIAL,
    TRIAL,
    TRIAL_EXPERIMENT,
    component_of,
    entity_arn,
    entity_key,
    experiment_of,
    indexed_text,
    trial_draft,
    trial_of,
)
from trainyard.server.records.contract import Change, Query, Resource, ValueFilter
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.experiments.entities import (
    PAGE,
    ListedPage,
    change_entity,
    create_entity,
    list_page,
    load_entity,
    not_found,
    tags_of,
    times_of,
    touch,
    user_shape,
)
from trainyard.server.services.tag_rules import require_tags
from trainyard.wire.fault import Fault


def create_trial(call: Call, shape: Shape) -> Shape:
    tags = tags_of(shape)
    require_tags(tags)
    experiment = load_entity(call, EXPERIMENT, shape["ExperimentName"])
    account = experiment.key.account
    trial = ExperimentTrial(
        name=shape["TrialName"],
        arn=entity_arn(call.region, account, TRIAL, shape["TrialName"]),
        experiment=experiment_of(experiment).name,
        display_name=shape.get("DisplayName", ""),
        metadata=shape.get("MetadataProperties", {}),
        created_by=call.caller.user,
        modified_by=call.caller.user,
    )
    draft = trial_draft(trial, parent=experiment.id, account=account, region=call.region, tags=tags)
    try:
        create_entity(call, draft, name=trial.name)
        is_kept = touch(call, experiment)
    except NotFound:
        is_kept = False
    if not is_kept:
        # The experiment was deleted in the meantime, and the trial with it.
        raise not_found(EXPERIMENT, shape["ExperimentName"], region=call.region, account=account)
    return {"TrialArn": trial.arn}


def describe_trial(call: Call, shape: Shape) -> Shape:
    return trial_description(load_entity(call, TRIAL, shape["TrialName"]))


def list_trials(call: Call, shape: Shape) -> Shape:
    """List all trials, those of an experiment, or those that a component belongs to."""
    if "ExperimentName" in shape and "TrialComponentName" in shape:
        raise InvalidRequest("Filter by ExperimentName or by TrialComponentName, not by both.")
    if "TrialComponentName" in shape:
        return _trials_of_component(call, shape).answer("TrialSummaries", _summary)
    values: tuple[ValueFilter, ...] = ()
    if "ExperimentName" in shape:
        experiment = load_entity(call, EXPERIMENT, shape["ExperimentName"])
        values = (ValueFilter(TRIAL_EXPERIMENT, (indexed_text(experiment.key.name),)),)
    return list_page(call, TRIAL, shape, values=values).answer("TrialSummaries", _summary)


def update_trial(call: Call, shape: Shape) -> Shape:
    def change(resource: Resource) -> Change:
        trial = trial_of(resource)
        name = shape.get("DisplayName", trial.display_name)
        return Change(body=to_plain(replace(trial, display_name=name, modified_by=call.caller.user)))

    return {"TrialArn": trial_of(change_entity(call, TRIAL, shape["TrialName"], change)).arn}


def delete_trial(call: Call, shape: Shape) -> Shape:
    """Delete a trial without components. One that is associated meanwhile is either seen here or refused there."""
    records = call.yard.records
    while True:
        resource = load_entity(call, TRIAL, shape["TrialName"])
        arn = trial_of(resource).arn
        of_trial = ValueFilter(PARENT_TRIAL, (indexed_text(resource.key.name),))
        if records.find_revisions(Query(COMPONENT, resource.key.account, values=(of_trial,), limit=1)).revisions:
            message = f"Trial '{arn}' has 1 or more trial components and cannot be deleted. Disassociate them first."
            raise Fault("ValidationException", message)
        if records.delete(resource, now=call.now):
            return {"TrialArn": arn}


OPERATIONS: Operations = {
    "CreateTrial": create_trial,
    "DescribeTrial": describe_trial,
    "ListTrials": list_trials,
    "UpdateTrial": update_trial,
    "DeleteTrial": delete_trial,
}


def trial_description(resource: Resource) -> Shape:
    """Return the answer of DescribeTrial."""
    trial = trial_of(resource)
    shape = _summary(resource) | {
        "ExperimentName": trial.experiment,
        "CreatedBy": user_shape(trial.created_by),
        "LastModifiedBy": user_shape(trial.modified_by),
    }
    return shape | ({"MetadataProperties": dict(trial.metadata)} if trial.metadata else {})


def _trials_of_component(call: Call, shape: Shape) -> ListedPage:
    """Return one page of the trials of a component, which are few; the token is the number of the next one."""
    component = load_entity(call, COMPONENT, shape["TrialComponentName"])
    names = [parent.trial for parent in component_of(component).parents]
    trials = [each for each in _load_trials(call, component.key.account, names) if _is_in_time(each, shape)]
    is_by_name = shape.get("SortBy") == "Name"
    trials.sort(
        key=lambda each: (each.key.name if is_by_name else each.created_at.isoformat(), each.id),
        reverse=shape.get("SortOrder", "Descending") == "Descending",
    )
    token = shape.get("NextToken", "0")
    if not (token.isascii() and token.isdecimal()):
        raise InvalidRequest("The NextToken is invalid.")
    end = int(token) + int(shape.get("MaxResults", PAGE))
    return ListedPage(trials[int(token) : end], str(end) if end < len(trials) else None)


def _load_trials(call: Call, account: str, names: Sequence[str]) -> list[Resource]:
    found = []
    for name in names:
        try:
            found.append(call.yard.records.load(entity_key(account, TRIAL, name)))
        except NotFound:
            # A kill between the two steps of an association can leave a parent that was deleted.
            continue
    return found


def _is_in_time(resource: Resource, shape: Shape) -> bool:
    after, before = shape.get("CreatedAfter"), shape.get("CreatedBefore")
    return (after is None or resource.created_at > after) and (before is None or resource.created_at < before)


def _summary(resource: Resource) -> Shape:
    trial = trial_of(resource)
    return {
        "TrialName": trial.name,
        "TrialArn": trial.arn,
        "DisplayName": trial.display_name or trial.name,
        **times_of(resource),
    }
