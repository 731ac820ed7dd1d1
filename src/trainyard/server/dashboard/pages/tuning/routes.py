"""The routes of a tuning job's page."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from trainyard.server.dashboard.api import ApiFault
from trainyard.server.dashboard.contract import JobTab, Page, Visit, get
from trainyard.server.dashboard.job_frame import load_tuning_job, render_job_page
from trainyard.server.dashboard.pages.tuning.live import state_of, watch_tuning_job
from trainyard.server.dashboard.pages.tuning.search_space import definitions_of, limits_of, parents_of


async def show_tuning_job(visit: Visit) -> Response:
    job = await load_tuning_job(visit)
    data = {
        "name": job.name,
        "created": job.created_at,
        "strategy": job.details["Strategy"],
        "earlyStopping": job.details["EarlyStopping"],
        "pruningRules": job.details["PruningRules"],
        "seed": job.details["RandomSeed"],
        "definitions": definitions_of(job.description),
        "limits": limits_of(job.description),
        "parents": await _parents(visit, job.description),
        "state": state_of(job.description, job.details),
    }
    return render_job_page(visit, "tuning/tuning.html", job, tab="", data=data)


async def follow_tuning_job(visit: Visit) -> Response:
    return visit.events(watch_tuning_job(visit, visit.path["name"]))


async def read_survey(visit: Visit) -> Response:
    asked: dict[str, Any] = _job_name(visit)
    if definition := visit.query.get("definition"):
        asked["DefinitionName"] = definition
    if (x := visit.query.get("x")) and (y := visit.query.get("y")):
        asked["HyperParameterNames"] = [x, y]
    return visit.json(await visit.api.call("trainyard", "SurveyTuningJob", asked))


async def read_next_trial(visit: Visit) -> Response:
    return visit.json(await visit.api.call("trainyard", "ExplainNextTrial", _job_name(visit)))


async def _parents(visit: Visit, description: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the tuning jobs that a warm start began with, and the best result of each that still exists."""
    parents = parents_of(description)
    return None if parents is None else parents | {"bests": [await _best(visit, name) for name in parents["names"]]}


async def _best(visit: Visit, name: str) -> float | None:
    named = {"HyperParameterTuningJobName": name}
    try:
        described = await visit.api.call("sagemaker", "DescribeHyperParameterTuningJob", named)
    except ApiFault:
        return None
    if "BestTrainingJob" not in described:
        return None
    value: float = described["BestTrainingJob"]["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
    return value


def _job_name(visit: Visit) -> dict[str, Any]:
    return {"HyperParameterTuningJobName": visit.path["name"]}


PAGE = Page(
    "tuning",
    routes=(
        get("/tuning/{name}", show_tuning_job),
        get("/tuning/{name}/live", follow_tuning_job),
        get("/tuning/{name}/survey", read_survey),
        get("/tuning/{name}/next", read_next_trial),
    ),
    tabs=(JobTab("", "Trials", order=10, kind="tuning"),),
)
