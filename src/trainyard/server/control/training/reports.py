"""What the reports of agents mean for a training job: those of every job, and those about its artifacts."""

from collections.abc import Sequence
from dataclasses import replace

from trainyard.foundation.jobs.training.job import Artifact, TrainingJob
from trainyard.link.contract import Frame, FrameKind
from trainyard.server.control.instances import reports
from trainyard.server.control.instances.reports import InstanceReport


def apply_reports(job: TrainingJob, given: Sequence[InstanceReport]) -> TrainingJob:
    """Apply reports to a job in the order of their times, and move the cursors behind them."""
    return reports.apply_reports(job, given, more={FrameKind.ARTIFACT: _apply_artifact})


def _apply_artifact(job: TrainingJob, frame: Frame) -> TrainingJob:
    payload = frame.payload
    artifact = Artifact(payload["uri"], payload["size"])
    return replace(job, artifacts={**job.artifacts, payload["kind"]: artifact})
