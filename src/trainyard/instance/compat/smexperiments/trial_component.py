"""Trial components."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from trainyard._sdk.experiments.entities import parameter_shape, parameter_value

from .entity import Entity
from .service import BotoService, unique_name


@dataclass
class TrialComponentArtifact:
    """Something that a component read or wrote."""

    value: str
    media_type: str | None = None


@dataclass
class TrialComponentStatus:
    """The status of a component."""

    primary_status: str | None = None
    message: str | None = None


@dataclass
class TrialComponentMetricSummary:
    """The statistics of a metric."""

    metric_name: str
    source_arn: str | None = None
    time_stamp: datetime | None = None
    max: float | None = None
    min: float | None = None
    last: float | None = None
    count: int | None = None
    avg: float | None = None
    std_dev: float | None = None


class TrialComponent(Entity):
    """One thing that was tried. Changes of the attributes are stored by `save`."""

    _word, _resource, _name = "TrialComponent", "ExperimentTrialComponent", "trial_component_name"
    _members: ClassVar[dict[str, str]] = {
        "TrialComponentName": "trial_component_name",
        "TrialComponentArn": "trial_component_arn",
        "DisplayName": "display_name",
        "Source": "source",
        "Status": "status",
        "StartTime": "start_time",
        "EndTime": "end_time",
        "CreationTime": "creation_time",
        "LastModifiedTime": "last_modified_time",
        "Parameters": "parameters",
        "InputArtifacts": "input_artifacts",
        "OutputArtifacts": "output_artifacts",
        "Metrics": "metrics",
    }
    _updated = ("DisplayName", "StartTime", "EndTime")

    trial_component_name: str
    trial_component_arn: str
    display_name: str | None
    status: TrialComponentStatus | None
    parameters: dict[str, Any]
    input_artifacts: dict[str, TrialComponentArtifact]
    output_artifacts: dict[str, TrialComponentArtifact]
    metrics: list[TrialComponentMetricSummary]

    def __init__(self, sagemaker_boto_client: Any = None, **attributes: Any) -> None:
        super().__init__(sagemaker_boto_client, **attributes)
        self.parameters = self.parameters or {}
        self.input_artifacts = self.input_artifacts or {}
        self.output_artifacts = self.output_artifacts or {}
        self.metrics = self.metrics or []

    @classmethod
    def create(
        cls,
        trial_component_name: str | None = None,
        display_name: str | None = None,
        tags: list[dict[str, str]] | None = None,
        sagemaker_boto_client: Any = None,
    ) -> "TrialComponent":
        """Create a component."""
        name = trial_component_name or unique_name("TrialComponent")
        BotoService(sagemaker_boto_client).call(
            "CreateTrialComponent", TrialComponentName=name, DisplayName=display_name, Tags=tags
        )
        return cls._of_name(name, sagemaker_boto_client)

    @classmethod
    def load(cls, trial_component_name: str, sagemaker_boto_client: Any = None) -> "TrialComponent":
        """Load a component."""
        return cls._of_name(trial_component_name, sagemaker_boto_client)

    @classmethod
    def list(
        cls,
        source_arn: str | None = None,
        created_before: datetime | None = None,
        created_after: datetime | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        sagemaker_boto_client: Any = None,
        trial_name: str | None = None,
        experiment_name: str | None = None,
        max_results: int | None = None,
        next_token: str | None = None,
    ) -> "Iterator[TrialComponent]":
        """Yield all components, or those of a job, of a trial or of an experiment."""
        return cls._listed(
            "TrialComponentSummaries",
            sagemaker_boto_client,
            SourceArn=source_arn,
            TrialName=trial_name,
            ExperimentName=experiment_name,
            CreatedBefore=created_before,
            CreatedAfter=created_after,
            SortBy=sort_by,
            SortOrder=sort_order,
            MaxResults=max_results,
            NextToken=next_token,
        )

    def delete(self, force_disassociate: bool | None = None) -> None:
        """Delete the component, which must be in no trial; `force_disassociate` removes it from all first."""
        if force_disassociate:
            for trial in self.service.pages(
                "ListTrials", "TrialSummaries", TrialComponentName=self.trial_component_name
            ):
                self.service.call(
                    "DisassociateTrialComponent",
                    TrialName=trial["TrialName"],
                    TrialComponentName=self.trial_component_name,
                )
        self.service.call("DeleteTrialComponent", TrialComponentName=self.trial_component_name)

    def _changes(self) -> dict[str, Any]:
        changes = super()._changes()
        if self.status is not None:
            status = {"PrimaryStatus": self.status.primary_status, "Message": self.status.message}
            changes["Status"] = {member: value for member, value in status.items() if value is not None}
        return changes | {
            "Parameters": {name: parameter_shape(value) for name, value in self.parameters.items()},
            "InputArtifacts": _artifact_shapes(self.input_artifacts),
            "OutputArtifacts": _artifact_shapes(self.output_artifacts),
        }

    def _read(self, shape: dict[str, Any]) -> None:
        super()._read(shape)
        if "Status" in shape:
            self.status = TrialComponentStatus(shape["Status"].get("PrimaryStatus"), shape["Status"].get("Message"))
        self.parameters = {name: parameter_value(each) for name, each in shape.get("Parameters", {}).items()}
        self.input_artifacts = _artifacts(shape.get("InputArtifacts", {}))
        self.output_artifacts = _artifacts(shape.get("OutputArtifacts", {}))
        self.metrics = [
            TrialComponentMetricSummary(
                each["MetricName"],
                each.get("SourceArn"),
                each.get("TimeStamp"),
                max=each.get("Max"),
                min=each.get("Min"),
                last=each.get("Last"),
                count=each.get("Count"),
                avg=each.get("Avg"),
                std_dev=each.get("StdDev"),
            )
            for each in shape.get("Metrics", ())
        ]


def _artifacts(shapes: dict[str, Any]) -> dict[str, TrialComponentArtifact]:
    return {name: TrialComponentArtifact(each["Value"], each.get("MediaType")) for name, each in shapes.items()}


def _artifact_shapes(artifacts: dict[str, TrialComponentArtifact]) -> dict[str, dict[str, str]]:
    return {
        name: {"Value": each.value} | ({"MediaType": each.media_type} if each.media_type else {})
        for name, each in artifacts.items()
    }
