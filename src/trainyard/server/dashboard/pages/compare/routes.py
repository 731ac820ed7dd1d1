"""The routes of the comparison of training jobs."""

import asyncio
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote

from starlette.responses import Response

from trainyard.server.dashboard.contract import NavigationEntry, Page, Visit, get
from trainyard.server.dashboard.pages.compare.facts import MAX_JOBS, comparison_of, read_jobs
from trainyard.server.dashboard.pages.compare.job_code import differing_files
from trainyard.server.dashboard.pages.job.live import compact_points
from trainyard.server.dashboard.pages.job.measurements import MAX_POINTS, read_metric_points, read_steps
from trainyard.server.dashboard.visit import BadRequest

_SUGGESTED = 20
_MAX_METRICS = 40
# Comparing lines keeps a thread busy.
_COMPARING = asyncio.Semaphore(1)
# Of all metrics of all jobs: about as many as the charts have pixels. A part that is zoomed to gets more.
_ALL_POINTS, _MIN_POINTS = 80_000, 400


async def show_comparison(visit: Visit) -> Response:
    return visit.render("compare/compare.html", has_jobs=bool(_names(visit)))


async def read_facts(visit: Visit) -> Response:
    names = _names(visit)
    jobs, problems = await read_jobs(visit, names[:MAX_JOBS])
    if len(names) > MAX_JOBS:
        problems.append(f"Only the first {MAX_JOBS} of {len(names)} jobs are compared.")
    facts = comparison_of(jobs)
    return visit.json({"jobs": [job.head for job in jobs], "facts": facts, "problems": problems})


async def read_points(visit: Visit) -> Response:
    """Read metrics of one job; with fewer points of each where there are many jobs and metrics."""
    name, metrics = visit.query.get("job", ""), _query_list(visit, "metrics")[:_MAX_METRICS]
    shared_by = visit.query_int("jobs", 1, least=1, most=MAX_JOBS) * max(1, len(metrics))
    points, most = list[dict[str, Any]](), max(_MIN_POINTS, min(MAX_POINTS, _ALL_POINTS // shared_by))
    for metric in metrics:
        asked = {"TrainingJobName": name, "MetricName": metric, "MaxPoints": most}
        async with aclosing(visit.api.lines("trainyard", "ReadMetric", asked)) as lines:
            points += [compact_points(line | {"metric": metric}) async for line in lines if line]
    return visit.json({"points": points, "steps": await read_steps(visit, name)})


async def read_finer_points(visit: Visit) -> Response:
    """Read the points of one metric of one job in a range of time."""
    name, metric = visit.query.get("job", ""), visit.query.get("metric", "")
    return visit.json(await read_metric_points(visit, name, metric))


async def read_difference(visit: Visit) -> Response:
    """Compare the code of two jobs line by line."""
    names = [visit.query.get("from", ""), visit.query.get("to", "")]
    jobs, problems = await read_jobs(visit, names)
    if problems:
        raise BadRequest(problems[0])
    async with _COMPARING:
        return visit.json(await asyncio.to_thread(differing_files, jobs[0].facts, jobs[1].facts))


async def suggest_jobs(visit: Visit) -> Response:
    """Return the latest training jobs whose names have what a person typed."""
    typed = visit.query.get("q", "").strip()
    asked = {"Filter": f"kind:training {typed}".strip(), "MaxResults": _SUGGESTED}
    answer = await visit.api.call("trainyard", "ListJobs", asked)
    return visit.json([job["Name"] for job in answer["Jobs"]])


PAGE = Page(
    "compare",
    routes=(
        get("/compare", show_comparison),
        get("/compare/facts", read_facts),
        get("/compare/points", read_points),
        get("/compare/finer-points", read_finer_points),
        get("/compare/code", read_difference),
        get("/compare/jobs", suggest_jobs),
    ),
    navigation=(NavigationEntry("Compare", "/-/compare", order=20),),
)


def _names(visit: Visit) -> list[str]:
    return list(dict.fromkeys(_query_list(visit, "jobs")))


def _query_list(visit: Visit, parameter: str) -> list[str]:
    """Return a list of the query. Its items are encoded once more, because they may contain commas."""
    return [unquote(each) for each in visit.query.get(parameter, "").split(",") if each]
