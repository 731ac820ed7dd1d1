"""The overview of a training job: what happens in it, why it failed, its metrics and its hardware."""

from starlette.responses import Response

from trainyard.server.dashboard.contract import JobTab, Page, Visit, get
from trainyard.server.dashboard.job_frame import load_training_job, render_job_page
from trainyard.server.dashboard.pages.job.job_filters import failure_filter
from trainyard.server.dashboard.pages.job.live import watch_job
from trainyard.server.dashboard.pages.job.measurements import (
    points_of_each,
    read_all_points,
    read_hardware,
    read_metric_points,
    read_steps,
)
from trainyard.server.dashboard.pages.job.overview import job_facts, read_overview
from trainyard.server.services.contract import Shape

# Jobs with the same failure, of which the page names the latest.
_SIMILAR_JOBS = 50
_NAMED_JOBS = 5


async def show_overview(visit: Visit) -> Response:
    overview = await read_overview(visit, now=visit.now)
    return render_job_page(visit, "job/job_overview.html", overview.job, tab="", overview=overview)


async def follow_overview(visit: Visit) -> Response:
    job = await load_training_job(visit)
    definitions = job.description["AlgorithmSpecification"].get("MetricDefinitions", ())
    asked: Shape = {"TrainingJobName": job.name, "MaxPoints": points_of_each(len(definitions))}
    if visit.last_event_id:
        asked["Cursor"] = visit.last_event_id
    return visit.events(watch_job(visit, asked))


async def send_points(visit: Visit) -> Response:
    """Send the points of all metrics of a job that has ended."""
    job = await load_training_job(visit)
    definitions = job.description["AlgorithmSpecification"].get("MetricDefinitions", ())
    return visit.json(await read_all_points(visit, job.name, points_of_each(len(definitions))))


async def send_metric(visit: Visit) -> Response:
    return visit.json(await read_metric_points(visit, visit.path["name"], visit.path["metric"]))


async def send_hardware(visit: Visit) -> Response:
    return visit.json(await read_hardware(visit, visit.path["name"]))


async def show_chart(visit: Visit) -> Response:
    """Show one chart alone, such as in a frame of another page."""
    job = await load_training_job(visit)
    return visit.render("job/chart.html", job=job, metric=visit.path["metric"], facts=job_facts(job))


async def send_steps(visit: Visit) -> Response:
    return visit.json(await read_steps(visit, visit.path["name"]))


async def find_similar_failures(visit: Visit) -> Response:
    """Find other jobs that failed in the same way."""
    job = await load_training_job(visit)
    filter_text = failure_filter(job.details.get("FailureCard", {}).get("Summary", ""))
    if not filter_text:
        return visit.json({"count": 0, "jobs": [], "filter": ""})
    asked = {"Filter": filter_text, "MaxResults": _SIMILAR_JOBS, "Metrics": []}
    answer = await visit.api.call("trainyard", "ListJobs", asked)
    others = [each["Name"] for each in answer["Jobs"] if each["Arn"] != job.description["TrainingJobArn"]]
    return visit.json(
        {
            "count": len(others),
            "isMore": "NextToken" in answer,
            "jobs": others[:_NAMED_JOBS],
            "filter": filter_text,
        }
    )


PAGE = Page(
    "job",
    routes=(
        get("/training/{name}", show_overview),
        get("/training/{name}/live", follow_overview),
        get("/training/{name}/points", send_points),
        get("/training/{name}/points/{metric:path}", send_metric),
        get("/training/{name}/hardware", send_hardware),
        get("/training/{name}/steps", send_steps),
        get("/training/{name}/similar-failures", find_similar_failures),
        get("/training/{name}/charts/{metric:path}", show_chart, is_embeddable=True),
    ),
    tabs=(JobTab("", "Overview", order=10),),
)
