"""Trials of experiments."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar

from .entity import Entity
from .service import BotoService, unique_name
from .trial_component import TrialComponent


class Trial(Entity):
    """A collection of trial components in an experiment."""

    _word, _resource, _name = "Trial", "ExperimentTrial", "trial_name"
    _members: ClassVar[dict[str, str]] = {
        "TrialName": "trial_name",
        "TrialArn": "trial_arn",
        "DisplayName": "display_name",
        "ExperimentName": "experiment_name",
        "Source": "source",
        "CreationTime": "creation_time",
        "LastModifiedTime": "last_modified_time",
    }
    _updated = ("DisplayName",)

    trial_name: str
    experiment_name: str

    @classmethod
    def create(
        cls,
        experiment_name: str,
        trial_name: str | None = None,
        sagemaker_boto_client: Any = None,
        trial_components: list[Any] | None = None,
        tags: list[dict[str, str]] | None = None,
    ) -> "Trial":
        """Create a trial, with components if any are given."""
        name = trial_name or unique_name("Trial")
        BotoService(sagemaker_boto_client).call(
            "CreateTrial", TrialName=name, ExperimentName=experiment_name, Tags=tags
        )
        trial = cls._of_name(name, sagemaker_boto_client)
        for each in trial_components or ():
            trial.add_trial_component(each)
        return trial

    @classmethod
    def load(cls, trial_name: str, sagemaker_boto_client: Any = None) -> "Trial":
        """Load a trial."""
        return cls._of_name(trial_name, sagemaker_boto_client)

    @classmethod
    def list(
        cls,
        experiment_name: str | None = None,
        trial_component_name: str | None = None,
        created_before: datetime | None = None,
        created_after: datetime | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        sagemaker_boto_client: Any = None,
    ) -> "Iterator[Trial]":
        """Yield all trials, or those of an experiment or of a component."""
        return cls._listed(
            "TrialSummaries",
            sagemaker_boto_client,
            ExperimentName=experiment_name,
            TrialComponentName=trial_component_name,
            CreatedBefore=created_before,
            CreatedAfter=created_after,
            SortBy=sort_by,
            SortOrder=sort_order,
        )

    def add_trial_component(self, tc: Any) -> None:
        """Add a component, a tracker or the name of a component."""
        self.service.call("AssociateTrialComponent", TrialName=self.trial_name, TrialComponentName=_component_name(tc))

    def remove_trial_component(self, tc: Any) -> None:
        """Remove a component, a tracker or the name of a component."""
        self.service.call(
            "DisassociateTrialComponent", TrialName=self.trial_name, TrialComponentName=_component_name(tc)
        )

    def list_trial_components(self, **asked: Any) -> Iterator[TrialComponent]:
        """Yield the components of the trial."""
        return TrialComponent.list(
            trial_name=self.trial_name, sagemaker_boto_client=self.sagemaker_boto_client, **asked
        )

    def delete(self) -> None:
        """Delete the trial, which must have no components."""
        self.service.call("DeleteTrial", TrialName=self.trial_name)

    def delete_all(self, force: bool = False) -> None:
        """Delete the trial with its components."""
        if not force:
            raise ValueError("Pass force=True to delete the trial with all its components.")
        for component in self.list_trial_components():
            component.delete(force_disassociate=True)
        self.delete()


def _component_name(component: Any) -> str:
    component = getattr(component, "trial_component", component)
    name: str = getattr(component, "trial_component_name", component)
    return name
