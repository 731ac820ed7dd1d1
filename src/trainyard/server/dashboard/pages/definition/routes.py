"""The routes of the definition of a training job, and of the form that creates another from it."""

from typing import Any

from starlette.responses import Response

from trainyard.server.dashboard.api import ApiFault
from trainyard.server.dashboard.contract import JobTab, Page, Visit, get, post
from trainyard.server.dashboard.job_frame import load_training_job, render_job_page
from trainyard.server.dashboard.pages.definition.request import next_name, request_of
from trainyard.server.dashboard.pages.definition.sections import sections_of
from trainyard.server.dashboard.pages.definition.snippets import snippets_of
from trainyard.server.dashboard.visit import BadRequest
from trainyard.server.services.contract import Shape

_NAMES_TRIED = 30
_QUOTED = ("InstanceType", "InstanceCount", "InstanceGroups", "Spot", "MaxRuntimeInSeconds", "Image", "Tags")


async def show_definition(visit: Visit) -> Response:
    job = await load_training_job(visit)
    request = await request_of(visit, job)
    sections, snippets = sections_of(job, request), snippets_of(request)
    return render_job_page(
        visit, "definition/definition.html", job, tab="definition", sections=sections, snippets=snippets
    )


async def show_clone_form(visit: Visit) -> Response:
    job = await load_training_job(visit)
    request = await request_of(visit, job)
    name = await _free_name(visit, job.name)
    columns = await visit.api.call("trainyard", "ListJobColumns")
    data = {
        "source": job.name,
        "request": _rename_job(request, job.name, name),
        "instanceTypes": columns["InstanceTypes"],
        "images": columns["Images"],
    }
    return visit.render("definition/clone.html", job=job, data=data)


async def quote_job(visit: Visit) -> Response:
    """Tell what a job would cost and where it would run."""
    given = await visit.read_json()
    wanted = {name: given[name] for name in _QUOTED if given.get(name) not in (None, "", [])}
    return visit.json(await visit.api.call("trainyard", "QuoteJob", wanted))


async def create_job(visit: Visit) -> Response:
    request = await visit.read_json()
    name: Any = request.get("TrainingJobName")
    if not isinstance(name, str):
        raise BadRequest("The request has no TrainingJobName.")
    await visit.api.call("sagemaker", "CreateTrainingJob", request)
    return visit.json({"address": f"/-/training/{name}"})


PAGE = Page(
    "definition",
    routes=(
        get("/training/{name}/definition", show_definition),
        get("/training/{name}/clone", show_clone_form),
        post("/new-job/quote", quote_job),
        post("/new-job", create_job),
    ),
    tabs=(JobTab("definition", "Definition", order=40),),
)


async def _free_name(visit: Visit, name: str) -> str:
    for _ in range(_NAMES_TRIED):
        name = next_name(name, visit.now)
        try:
            await visit.api.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": name})
        except ApiFault:
            break
    return name


def _rename_job(request: Shape, before: str, name: str) -> Shape:
    """Return the request under another name. Its checkpoints must not be those of the job before."""
    changed = request | {"TrainingJobName": name}
    if checkpoints := request.get("CheckpointConfig"):
        changed["CheckpointConfig"] = checkpoints | {"S3Uri": checkpoints["S3Uri"].replace(before, name)}
    return changed
