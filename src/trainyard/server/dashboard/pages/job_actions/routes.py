"""The routes of the actions on one job. Stopping, deleting and tagging are those of the list of jobs."""

from starlette.responses import Response

from trainyard.server.dashboard.contract import Page, Visit, get, post


async def interrupt_job(visit: Visit) -> Response:
    await visit.api.call("trainyard", "InterruptJob", {"TrainingJobName": visit.path["name"]})
    return visit.json({})


async def read_job_state(visit: Visit) -> Response:
    """Tell the status of a job, for pages that do not follow it."""
    name = visit.path["name"]
    if visit.path["kind"] == "tuning":
        named = {"HyperParameterTuningJobName": name}
        described = await visit.api.call("sagemaker", "DescribeHyperParameterTuningJob", named)
        return visit.json({"status": described["HyperParameterTuningJobStatus"]})
    if visit.path["kind"] == "processing":
        described = await visit.api.call("trainyard", "DescribeJob", {"TrainingJobName": name, "Kind": "processing"})
        return visit.json({"status": described["Status"], "secondary": described["SecondaryStatus"]})
    described = await visit.api.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": name})
    return visit.json({"status": described["TrainingJobStatus"], "secondary": described["SecondaryStatus"]})


async def list_tags(visit: Visit) -> Response:
    answer = await visit.api.call("sagemaker", "ListTags", {"ResourceArn": visit.query.get("arn", "")})
    return visit.json(answer["Tags"])


PAGE = Page(
    "job_actions",
    routes=(
        post("/training/{name}/interrupt", interrupt_job),
        get("/job-state/{kind}/{name}", read_job_state),
        get("/job-tags", list_tags),
    ),
)
