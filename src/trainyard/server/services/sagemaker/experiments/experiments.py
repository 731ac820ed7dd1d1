"""Experiments: create, describe, list, update and delete."""

from dataclasses import replace

from trainyard.foundation.experiments import Experiment
from trainyard.foundation.plain import to_plain
from trainyard.server.experiments.storage import EXPERIMENT, TRIAL, entity_arn, experiment_draft, experiment_of
from trainyard.server.records.contract import Change, Query, Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.experiments.entities import (
    change_entity,
    create_entity,
    list_page,
    load_entity,
    tags_of,
    times_of,
    user_shape,
)
from trainyard.server.services.tag_rules import require_tags
from trainyard.wire.fault import Fault


def create_experiment(call: Call, shape: Shape) -> Shape:
    name, tags = shape["ExperimentName"], tags_of(shape)
    require_tags(tags)
    experiment = Experiment(
        name=name,
        arn=entity_arn(call.region, call.account, EXPERIMENT, name),
        display_name=shape.get("DisplayName", ""),
        description=shape.get("Description", ""),
        created_by=call.caller.user,
        modified_by=call.caller.user,
    )
    create_entity(call, experiment_draft(experiment, account=call.account, region=call.region, tags=tags), name=name)
    return {"ExperimentArn": experiment.arn}


def describe_experiment(call: Call, shape: Shape) -> Shape:
    return experiment_description(load_entity(call, EXPERIMENT, shape["ExperimentName"]))


def list_experiments(call: Call, shape: Shape) -> Shape:
    return list_page(call, EXPERIMENT, shape).answer("ExperimentSummaries", _summary)


def update_experiment(call: Call, shape: Shape) -> Shape:
    def change(resource: Resource) -> Change:
        experiment = experiment_of(resource)
        changed = replace(
            experiment,
            display_name=shape.get("DisplayName", experiment.display_name),
            description=shape.get("Description", experiment.description),
            modified_by=call.caller.user,
        )
        return Change(body=to_plain(changed))

    return {"ExperimentArn": experiment_of(change_entity(call, EXPERIMENT, shape["ExperimentName"], change)).arn}


def delete_experiment(call: Call, shape: Shape) -> Shape:
    """Delete an experiment without trials. A trial that is created meanwhile is either seen here or refused there."""
    records = call.yard.records
    while True:
        resource = load_entity(call, EXPERIMENT, shape["ExperimentName"])
        arn = experiment_of(resource).arn
        if records.count(Query(TRIAL, parent=resource.id)):
            message = f"Experiment '{arn}' contains 1 or more trials and cannot be deleted. Delete its trials first."
            raise Fault("ValidationException", message)
        if records.delete(resource, now=call.now):
            return {"ExperimentArn": arn}


OPERATIONS: Operations = {
    "CreateExperiment": create_experiment,
    "DescribeExperiment": describe_experiment,
    "ListExperiments": list_experiments,
    "UpdateExperiment": update_experiment,
    "DeleteExperiment": delete_experiment,
}


def experiment_description(resource: Resource) -> Shape:
    """Return the answer of DescribeExperiment."""
    experiment = experiment_of(resource)
    shape = _summary(resource) | {
        "CreatedBy": user_shape(experiment.created_by),
        "LastModifiedBy": user_shape(experiment.modified_by),
    }
    return shape | ({"Description": experiment.description} if experiment.description else {})


def _summary(resource: Resource) -> Shape:
    experiment = experiment_of(resource)
    return {
        "ExperimentName": experiment.name,
        "ExperimentArn": experiment.arn,
        "DisplayName": experiment.display_name or experiment.name,
        **times_of(resource),
    }
