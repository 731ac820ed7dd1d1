"""`trainyard ls`: list training jobs."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard.cli.jobs.lookup import open_api, to_json
from trainyard.cli.terminal.console import CommandWithExamples, home_option, json_option, print_json, say

_STATUSES = ("InProgress", "Completed", "Failed", "Stopping", "Stopped")


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard ls                          the latest twenty",
        "trainyard ls --status Failed -n 100",
        "trainyard ls --name mnist --json      jobs with mnist in their names",
    ),
)
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only jobs with this status.")
@click.option("--name", metavar="TEXT", help="Only jobs with this text in their names.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of jobs."
)
@home_option
@json_option
def ls(status: str | None, name: str | None, limit: int, folder: Path | None, as_json: bool) -> None:
    """List training jobs, newest first."""
    filters = {"StatusEquals": status} if status else {}
    filters |= {"NameContains": name} if name else {}
    with open_api(folder) as api:
        jobs = list(_latest(api, limit, filters))
    if as_json:
        print_json({"jobs": [_values(job) for job in jobs]})
        return
    if not jobs:
        say("No training job matches." if filters else "There are no training jobs; `trainyard run SCRIPT` starts one.")
        return
    width = max(len(job["TrainingJobName"]) for job in jobs)
    for job in jobs:
        click.echo(_row(job, width, now=datetime.now(UTC)))


def _latest(api: Api, limit: int, filters: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    request: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending", **filters}
    while limit:
        page = api.call("sagemaker", "ListTrainingJobs", MaxResults=min(limit, 100), **request)
        yield from page["TrainingJobSummaries"]
        limit -= len(page["TrainingJobSummaries"])
        if not page.get("NextToken"):
            return
        request["NextToken"] = page["NextToken"]


def _values(job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": job["TrainingJobName"],
        "arn": job["TrainingJobArn"],
        "status": job["TrainingJobStatus"],
        "created_at": to_json(job["CreationTime"]),
        "ended_at": to_json(job.get("TrainingEndTime")),
    }


def _row(job: Mapping[str, Any], width: int, *, now: datetime) -> str:
    created: datetime = job["CreationTime"]
    seconds = int(((job.get("TrainingEndTime") or now) - created).total_seconds())
    duration = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    local = created.astimezone()
    return (
        f"{job['TrainingJobName']:<{width}}  {job['TrainingJobStatus']:<10}  {local:%Y-%m-%d %H:%M:%S}  {duration:>9}"
    )
