"""The head and the tabs of all pages of one job."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.responses import Response

from trainyard.server.dashboard.contract import JobTab, Visit
from trainyard.server.services.contract import Shape

_ARNS = {
    "training": "TrainingJobArn",
    "processing": "ProcessingJobArn",
    "tuning": "HyperParameterTuningJobArn",
}
_RUNNING = frozenset({"InProgress", "Stopping"})


@dataclass(frozen=True, slots=True)
class JobFrame:
    """What the head of a job's pages shows. `description` is AWS's description of the job, `details` the yard's."""

    kind: str
    name: str
    status: str
    secondary_status: str
    user: str
    created_at: datetime
    ended_at: datetime | None
    description: Shape
    details: Shape
    tabs: Sequence[JobTab]

    @property
    def is_running(self) -> bool:
        return self.status in _RUNNING

    @property
    def is_spot(self) -> bool:
        return bool(self.description.get("EnableManagedSpotTraining"))

    @property
    def arn(self) -> str:
        arn: str = self.description[_ARNS[self.kind]]
        return arn

    @property
    def address(self) -> str:
        return f"/-/{self.kind}/{self.name}"


async def load_training_job(visit: Visit) -> JobFrame:
    """Load the training job that the address names. ApiFault if the user can see none."""
    named = {"TrainingJobName": visit.path["name"]}
    description, details = await asyncio.gather(
        visit.api.call("sagemaker", "DescribeTrainingJob", named), visit.api.call("trainyard", "DescribeJob", named)
    )
    return JobFrame(
        kind="training",
        name=description["TrainingJobName"],
        status=description["TrainingJobStatus"],
        secondary_status=description["SecondaryStatus"],
        user=details["UserName"],
        created_at=description["CreationTime"],
        ended_at=description.get("TrainingEndTime"),
        description=description,
        details=details,
        tabs=visit.dashboard.tabs_of("training"),
    )


async def load_processing_job(visit: Visit) -> JobFrame:
    """Load the processing job that the address names. ApiFault if the user can see none."""
    name = visit.path["name"]
    description, details = await asyncio.gather(
        visit.api.call("sagemaker", "DescribeProcessingJob", {"ProcessingJobName": name}),
        visit.api.call("trainyard", "DescribeJob", {"TrainingJobName": name, "Kind": "processing"}),
    )
    return JobFrame(
        kind="processing",
        name=description["ProcessingJobName"],
        status=description["ProcessingJobStatus"],
        secondary_status=details["SecondaryStatus"],
        user=details["UserName"],
        created_at=description["CreationTime"],
        ended_at=description.get("ProcessingEndTime"),
        description=description,
        details=details,
        tabs=visit.dashboard.tabs_of("processing"),
    )


async def load_tuning_job(visit: Visit) -> JobFrame:
    """Load the tuning job that the address names. ApiFault if the user can see none."""
    named = {"HyperParameterTuningJobName": visit.path["name"]}
    description, details = await asyncio.gather(
        visit.api.call("sagemaker", "DescribeHyperParameterTuningJob", named),
        visit.api.call("trainyard", "DescribeTuningJob", named),
    )
    return JobFrame(
        kind="tuning",
        name=description["HyperParameterTuningJobName"],
        status=description["HyperParameterTuningJobStatus"],
        secondary_status="",
        user=details["UserName"],
        created_at=description["CreationTime"],
        ended_at=description.get("HyperParameterTuningEndTime"),
        description=description,
        details=details,
        tabs=visit.dashboard.tabs_of("tuning"),
    )


def render_job_page(visit: Visit, template: str, job: JobFrame, *, tab: str, **values: Any) -> Response:
    """Render a template that extends job.html. `tab` is the path of the tab that is open."""
    return visit.render(template, job=job, open_tab=tab, **values)
