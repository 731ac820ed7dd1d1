"""AssociateTrialComponent and DisassociateTrialComponent."""

from collections.abc import Callable
from dataclasses import replace

from trainyard.foundation.experiments import Parent, TrialComponent
from trainyard.server.experiments.storage import COMPONENT, TRIAL, component_change, component_of, trial_of
from trainyard.server.records.contract import Change, Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.experiments.entities import change_entity, load_entity, not_found, touch


def associate_trial_component(call: Call, shape: Shape) -> Shape:
    """Add a component to a trial. The component comes first, so that a delete of the trial finds it there."""
    resource = load_entity(call, TRIAL, shape["TrialName"])
    trial = trial_of(resource)
    parent = Parent(trial.name, trial.experiment)
    component = _change_parents(call, shape, lambda known: known if parent in known else (*known, parent))
    if not touch(call, resource):
        _change_parents(call, shape, lambda known: tuple(each for each in known if each != parent))
        raise not_found(TRIAL, shape["TrialName"], region=call.region, account=resource.key.account)
    return {"TrialComponentArn": component.arn, "TrialArn": trial.arn}


def disassociate_trial_component(call: Call, shape: Shape) -> Shape:
    """Remove a component from a trial. It is no error if it does not belong to it."""
    trial = trial_of(load_entity(call, TRIAL, shape["TrialName"]))
    component = _change_parents(
        call, shape, lambda known: tuple(each for each in known if each.trial.lower() != trial.name.lower())
    )
    return {"TrialComponentArn": component.arn, "TrialArn": trial.arn}


OPERATIONS: Operations = {
    "AssociateTrialComponent": associate_trial_component,
    "DisassociateTrialComponent": disassociate_trial_component,
}


def _change_parents(
    call: Call, shape: Shape, change_all: Callable[[tuple[Parent, ...]], tuple[Parent, ...]]
) -> TrialComponent:
    def change(resource: Resource) -> Change | None:
        component = component_of(resource)
        parents = change_all(component.parents)
        return (
            None if parents == component.parents else component_change(component, replace(component, parents=parents))
        )

    return component_of(change_entity(call, COMPONENT, shape["TrialComponentName"], change))
