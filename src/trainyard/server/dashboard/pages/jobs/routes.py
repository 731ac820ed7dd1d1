"""The routes of the list of jobs."""

from typing import Any

from starlette.responses import Response

from trainyard.server.dashboard.api import ApiFault
from trainyard.server.dashboard.contract import NavigationEntry, Page, Visit, get, post
from trainyard.server.dashboard.pages.jobs.changes import (
    MAX_JOBS,
    Job,
    change_each,
    delete_job,
    jobs_in,
    stop_job,
    tags_in,
)
from trainyard.server.dashboard.pages.jobs.live import watch_list
from trainyard.server.dashboard.pages.jobs.overview import prices_are_set, read_money, read_overview
from trainyard.server.dashboard.pages.jobs.view import PAGE_ROWS, ListView, compact_page

MAX_KNOWN = 200


async def show_jobs(visit: Visit) -> Response:
    """Show the page with its first rows, so that it is complete when it arrives."""
    view = ListView.of(visit)
    try:
        view, page = await _read_page(visit, view)
        problem = ""
    except ApiFault as fault:
        page, problem = {"rows": [], "next": None, "total": None, "groups": None}, fault.message
    has_jobs = bool(page["rows"]) or bool(view.filter or view.after)
    data = page | {"columns": view.columns}
    return visit.render("jobs/jobs.html", view=view, data=data, problem=problem, has_jobs=has_jobs)


async def read_list(visit: Visit) -> Response:
    limit = visit.query_int("limit", PAGE_ROWS, least=1, most=MAX_JOBS)
    view, page = await _read_page(visit, ListView.of(visit), limit=limit)
    return visit.json(page | {"columns": view.columns})


async def follow_list(visit: Visit) -> Response:
    known = [each for each in visit.query.get("known", "").split(",") if each][:MAX_KNOWN]
    return visit.events(watch_list(visit, ListView.of(visit), known))


async def read_columns(visit: Visit) -> Response:
    return visit.json(await visit.api.call("trainyard", "ListJobColumns"))


async def show_overview(visit: Visit) -> Response:
    return visit.json(await read_overview(visit))


async def show_money(visit: Visit) -> Response:
    return visit.json({"money": await read_money(visit)})


async def stop_jobs(visit: Visit) -> Response:
    return visit.json(await change_each(visit, jobs_in(await visit.read_json()), stop_job))


async def delete_jobs(visit: Visit) -> Response:
    return visit.json(await change_each(visit, jobs_in(await visit.read_json()), delete_job))


async def tag_jobs(visit: Visit) -> Response:
    body = await visit.read_json()
    add, remove = tags_in(body)

    async def change_tags(visit: Visit, job: Job) -> None:
        if add:
            await visit.api.call("sagemaker", "AddTags", {"ResourceArn": job["arn"], "Tags": add})
        if remove:
            await visit.api.call("sagemaker", "DeleteTags", {"ResourceArn": job["arn"], "TagKeys": remove})

    return visit.json(await change_each(visit, jobs_in(body), change_tags))


async def _read_page(visit: Visit, view: ListView, *, limit: int = PAGE_ROWS) -> tuple[ListView, dict[str, Any]]:
    answer = await visit.api.call("trainyard", "ListJobs", view.request(MaxResults=limit))
    if not view.columns:
        shows_costs = await prices_are_set(visit)
        view = view.with_columns_for(answer["Jobs"], shows_users=visit.user.is_admin, shows_costs=shows_costs)
        if any(each.startswith("spark:") for each in view.columns):
            answer = await visit.api.call("trainyard", "ListJobs", view.request(MaxResults=limit))
    return view, compact_page(answer)


PAGE = Page(
    "jobs",
    routes=(
        get("/jobs", show_jobs),
        get("/jobs/list", read_list),
        get("/jobs/live", follow_list),
        get("/jobs/columns", read_columns),
        get("/jobs/overview", show_overview),
        get("/jobs/money", show_money),
        post("/jobs/stop", stop_jobs),
        post("/jobs/delete", delete_jobs),
        post("/jobs/tags", tag_jobs),
    ),
    navigation=(NavigationEntry("Jobs", "/-/jobs", order=10),),
)
