"""The overview of a processing job: how it went, why it failed, what it read and where its outputs are."""

import asyncio
import shlex

from starlette.responses import Response

from trainyard.server.dashboard.contract import JobTab, Page, Visit, get
from trainyard.server.dashboard.job_frame import load_processing_job, render_job_page
from trainyard.server.dashboard.pages.job.job_filters import tag_filter
from trainyard.server.dashboard.pages.job.timeline import startup_bar


async def show_processing_job(visit: Visit) -> Response:
    job = await load_processing_job(visit)
    tags = (await visit.api.call("sagemaker", "ListTags", {"ResourceArn": job.arn}))["Tags"]
    program = job.description["AppSpecification"]
    words = [*program.get("ContainerEntrypoint", ()), *program.get("ContainerArguments", ())]
    return await asyncio.to_thread(
        render_job_page,
        visit,
        "processing_job/processing_job.html",
        job,
        tab="",
        details=job.details,
        description=job.description,
        card=job.details.get("FailureCard"),
        command=shlex.join(words),
        startup=startup_bar(job.details["Waterfall"], now=visit.now),
        tags=[(each, tag_filter(each["Key"], each["Value"])) for each in tags],
    )


PAGE = Page(
    "processing_job",
    routes=(get("/processing/{name}", show_processing_job),),
    tabs=(JobTab("", "Overview", order=10, kind="processing"),),
)
