"""Experiments."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar

from .entity import Entity
from .service import BotoService, unique_name
from .trial import Trial


class Experiment(Entity):
    """A collection of trials."""

    _word, _resource, _name = "Experiment", "Experiment", "experiment_name"
    _members: ClassVar[dict[str, str]] = {
        "ExperimentName": "experiment_name",
        "ExperimentArn": "experiment_arn",
        "DisplayName": "display_name",
        "Description": "description",
        "Source": "experiment_source",
        "CreationTime": "creation_time",
        "LastModifiedTime": "last_modified_time",
    }
    _updated = ("DisplayName", "Description")

    experiment_name: str
    description: str | None

    @classmethod
    def create(
        cls,
        experiment_name: str | None = None,
        description: str | None = None,
        tags: list[dict[str, str]] | None = None,
        sagemaker_boto_client: Any = None,
    ) -> "Experiment":
        """Create an experiment."""
        name = experiment_name or unique_name("Experiment")
        BotoService(sagemaker_boto_client).call(
            "CreateExperiment", ExperimentName=name, Description=description, Tags=tags
        )
        return cls._of_name(name, sagemaker_boto_client)

    @classmethod
    def load(cls, experiment_name: str, sagemaker_boto_client: Any = None) -> "Experiment":
        """Load an experiment."""
        return cls._of_name(experiment_name, sagemaker_boto_client)

    @classmethod
    def list(
        cls,
        created_before: datetime | None = None,
        created_after: datetime | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        sagemaker_boto_client: Any = None,
    ) -> "Iterator[Experiment]":
        """Yield all experiments."""
        return cls._listed(
            "ExperimentSummaries",
            sagemaker_boto_client,
            CreatedBefore=created_before,
            CreatedAfter=created_after,
            SortBy=sort_by,
            SortOrder=sort_order,
        )

    def list_trials(self, **asked: Any) -> Iterator[Trial]:
        """Yield the trials of the experiment."""
        return Trial.list(
            experiment_name=self.experiment_name, sagemaker_boto_client=self.sagemaker_boto_client, **asked
        )

    def create_trial(self, trial_name: str | None = None, trial_name_prefix: str = "SageMakerTrial") -> Trial:
        """Create a trial in the experiment."""
        name = trial_name or unique_name(trial_name_prefix)
        return Trial.create(self.experiment_name, name, sagemaker_boto_client=self.sagemaker_boto_client)

    def delete(self) -> None:
        """Delete the experiment, which must have no trials."""
        self.service.call("DeleteExperiment", ExperimentName=self.experiment_name)

    def delete_all(self, action: str) -> None:
        """Delete the experiment with all its trials and components; `action` must be `--force`."""
        if action != "--force":
            raise ValueError("Pass action='--force' to delete the experiment with all its trials and components.")
        for trial in self.list_trials():
            trial.delete_all(force=True)
        self.delete()
