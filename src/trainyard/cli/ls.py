"""`trainyard ls`: the training jobs."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, home_option, json_option, print_json, say
from trainyard.cli.jobs import calls, plain
from trainyard.connection import Api

_STATUSES = ("InProgress", "Completed", "Failed", "Stopping", "Stopped")


@click.command(
    cls=Command,
    short_help="List the training jobs.",
    examples=(
        "trainyard ls                          the latest twenty",
        "trainyard ls --status Failed -n 100",
        "trainyard ls --name mnist --json      those with mnist in their name",
    ),
)
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only jobs with this status.")
@click.option("--name", metavar="TEXT", help="Only jobs with this in their name.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most.")
@home_option
@json_option
def ls(status: str | None, name: str | None, limit: int, folder: Path | None, as_json: bool) -> None:
    """List the training jobs, the latest first."""
    asked = {"StatusEquals": status} if status else {}
    asked |= {"NameContains": name} if name else {}
    with calls(folder) as api:
        jobs = list(_latest(api, limit, asked))
    if as_json:
        print_json({"jobs": [_values(job) for job in jobs]})
        return
    if not jobs:
        say("There is no training job" + (" like that." if asked else " yet; `trainyard run SCRIPT` makes one."))
        return
    width = max(len(job["TrainingJobName"]) for job in jobs)
    for job in jobs:
        click.echo(_row(job, width, now=datetime.now(UTC)))


def _latest(api: Api, limit: int, asked: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    more: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending", **asked}
    while limit:
        page = api.call("sagemaker", "ListTrainingJobs", MaxResults=min(limit, 100), **more)
        yield from page["TrainingJobSummaries"]
        limit -= len(page["TrainingJobSummaries"])
        if not page.get("NextToken"):
            return
        more["NextToken"] = page["NextToken"]


def _values(job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": job["TrainingJobName"],
        "arn": job["TrainingJobArn"],
        "status": job["TrainingJobStatus"],
        "created_at": plain(job["CreationTime"]),
        "ended_at": plain(job.get("TrainingEndTime")),
    }


def _row(job: Mapping[str, Any], width: int, *, now: datetime) -> str:
    created: datetime = job["CreationTime"]
    seconds = int(((job.get("TrainingEndTime") or now) - created).total_seconds())
    lasted = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    local = created.astimezone()
    return f"{job['TrainingJobName']:<{width}}  {job['TrainingJobStatus']:<10}  {local:%Y-%m-%d %H:%M:%S}  {lasted:>9}"
