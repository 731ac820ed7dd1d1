"""Trackers: record what a script does in a trial component."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from trainyard._sdk.experiments.metric_writer import MetricWriter
from trainyard.foundation.experiments import component_name_of_job

from .trial_component import TrialComponent, TrialComponentArtifact, TrialComponentStatus


class Tracker:
    """Records parameters, metrics and artifacts in a component. In a `with` block, all is stored at its end."""

    def __init__(
        self, trial_component: TrialComponent, artifact_bucket: str | None = None, artifact_prefix: str | None = None
    ) -> None:
        self.trial_component = trial_component
        self._bucket, self._prefix = artifact_bucket, artifact_prefix or "trial-component-artifacts"
        self._metrics: MetricWriter | None = None
        self._in_sagemaker_job = False

    @classmethod
    def create(
        cls,
        display_name: str | None = None,
        artifact_bucket: str | None = None,
        artifact_prefix: str | None = None,
        boto_session: Any = None,  # noqa: ARG003 - part of the interface
        sagemaker_boto_client: Any = None,
    ) -> "Tracker":
        """Create a tracker with a new component."""
        component = TrialComponent.create(display_name=display_name, sagemaker_boto_client=sagemaker_boto_client)
        return cls(component, artifact_bucket, artifact_prefix)

    @classmethod
    def load(
        cls,
        trial_component_name: str | None = None,
        artifact_bucket: str | None = None,
        artifact_prefix: str | None = None,
        boto_session: Any = None,  # noqa: ARG003 - part of the interface
        sagemaker_boto_client: Any = None,
        training_job_name: str | None = None,
        processing_job_name: str | None = None,
    ) -> "Tracker":
        """Load the tracker of a component, of a job, or in a training job of that job."""
        name, job = trial_component_name, training_job_name
        if processing_job_name:
            name = name or f"{processing_job_name}-aws-processing-job".lower()
        if not name:
            job = job or os.environ.get("TRAINING_JOB_NAME")
            if not job:
                raise ValueError(
                    "Tracker.load needs a trial_component_name or a training_job_name outside training jobs."
                )
            name = component_name_of_job(job)
        tracker = cls(TrialComponent.load(name, sagemaker_boto_client), artifact_bucket, artifact_prefix)
        tracker._in_sagemaker_job = trial_component_name is None
        return tracker

    def log_parameter(self, name: str, value: Any) -> None:
        """Record a parameter."""
        self.trial_component.parameters[name] = value

    def log_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Record several parameters."""
        self.trial_component.parameters.update(parameters)

    def log_input(self, name: str, value: str, media_type: str | None = None) -> None:
        """Record something that was read."""
        self.trial_component.input_artifacts[name] = TrialComponentArtifact(value, media_type)

    def log_output(self, name: str, value: str, media_type: str | None = None) -> None:
        """Record something that was written."""
        self.trial_component.output_artifacts[name] = TrialComponentArtifact(value, media_type)

    def log_artifact(self, file_path: str, name: str | None = None, media_type: str | None = None) -> None:
        """Upload a file and record its location as an output."""
        self._upload(Path(file_path), name, media_type, is_output=True)

    def log_output_artifact(self, file_path: str, name: str | None = None, media_type: str | None = None) -> None:
        """Upload a file and record its location as an output."""
        self._upload(Path(file_path), name, media_type, is_output=True)

    def log_input_artifact(self, file_path: str, name: str | None = None, media_type: str | None = None) -> None:
        """Upload a file and record its location as an input."""
        self._upload(Path(file_path), name, media_type, is_output=False)

    def log_metric(
        self,
        metric_name: str,
        value: float,
        timestamp: datetime | float | None = None,
        iteration_number: int | None = None,
    ) -> None:
        """Record a value of a metric."""
        component = self.trial_component
        self._metrics = self._metrics or MetricWriter(component.service.api, component.trial_component_name.lower())
        at = datetime.fromtimestamp(timestamp, UTC) if isinstance(timestamp, int | float) else timestamp
        self._metrics.add(metric_name, value, step=iteration_number, at=at)

    def log_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Record a value of each of several metrics. A pandas column with one value counts as that value."""
        for name, value in metrics.items():
            self.log_metric(name, float(value.iloc[0] if hasattr(value, "iloc") else value))

    def close(self) -> None:
        """Store everything."""
        self.trial_component.save()
        if self._metrics is not None:
            self._metrics.close()

    def __enter__(self) -> "Tracker":
        self._set_status("InProgress")
        self.trial_component.start_time = datetime.now(UTC)  # type: ignore[attr-defined]
        self.trial_component.save()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The yard itself knows when a job ends.
        if not self._in_sagemaker_job:
            self.trial_component.end_time = datetime.now(UTC)  # type: ignore[attr-defined]
            self._set_status("Completed" if kind is None else "Failed", "" if error is None else str(error)[:1024])
        self.close()

    def _set_status(self, status: str, message: str = "") -> None:
        if not self._in_sagemaker_job:
            self.trial_component.status = TrialComponentStatus(status, message or None)

    def _upload(self, path: Path, name: str | None, media_type: str | None, *, is_output: bool) -> None:
        session = self.trial_component.service.session
        folder = f"{self._prefix}/{self.trial_component.trial_component_name}"
        uri = session.upload_data(str(path), self._bucket or session.default_bucket(), folder)
        artifacts = self.trial_component.output_artifacts if is_output else self.trial_component.input_artifacts
        artifacts[name or path.name] = TrialComponentArtifact(uri, media_type)
