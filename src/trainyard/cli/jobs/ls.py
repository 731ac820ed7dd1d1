"""`trainyard ls`: list training and processing jobs."""

import heapq
import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.training.console import duration_text
from trainyard.cli.jobs.kinds import KINDS, PROCESSING, Job, JobKind, kind_of, name_of, status_of
from trainyard.cli.jobs.lookup import open_api, to_json
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    json_option,
    say,
    yard_option,
)
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.tables import Column, Row, print_table
from trainyard.cli.terminal.word_choice import WordChoice

_COLUMNS = ("job", "kind", "status", "created", Column("duration", "right"))
_STATUSES = ("InProgress", "Completed", "Failed", "Stopping", "Stopped")


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard ls                          the latest twenty",
        "trainyard ls --status Failed -n 100",
        "trainyard ls --name mnist --json      jobs with mnist in their names",
    ),
)
@click.option(
    "--status",
    metavar="STATUS",
    type=WordChoice(_STATUSES),
    help=f"Only jobs with this status: {', '.join(_STATUSES)}.",
)
@click.option("--name", metavar="TEXT", help="Only jobs with this text in their names.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of jobs."
)
@yard_option
@json_option
def ls(status: str | None, name: str | None, limit: int, folder: Path | None, as_json: JsonFields | None) -> None:
    """List training and processing jobs, newest first."""
    filters = {"StatusEquals": status} if status else {}
    filters |= {"NameContains": name} if name else {}
    with open_api(folder) as api:
        jobs = list(_latest(api, limit, filters))
    if as_json:
        print_json({"Jobs": [_values(job) for job in jobs]}, as_json, items="Jobs")
        return
    if not jobs:
        say("No job matches." if filters else "There are no jobs; `trainyard run SCRIPT` starts one.")
        return
    print_table(_COLUMNS, [_row(job, now=datetime.now(UTC)) for job in jobs])


def _latest(api: Api, limit: int, filters: Mapping[str, Any]) -> Iterator[Job]:
    streams = [_of_kind(api, kind, limit, filters) for kind in KINDS]
    merged = heapq.merge(*streams, key=lambda job: job["CreationTime"], reverse=True)
    return itertools.islice(merged, limit)


def _of_kind(api: Api, kind: JobKind, limit: int, filters: Mapping[str, Any]) -> Iterator[Job]:
    request: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending", **filters}
    while limit:
        page = api.call("sagemaker", f"List{kind.shape}s", MaxResults=min(limit, 100), **request)
        yield from page[kind.summaries_member]
        limit -= len(page[kind.summaries_member])
        if not page.get("NextToken"):
            return
        request["NextToken"] = page["NextToken"]


def _values(job: Job) -> dict[str, Any]:
    if kind_of(job) is PROCESSING:
        return {
            "ProcessingJobName": job["ProcessingJobName"],
            "ProcessingJobArn": job["ProcessingJobArn"],
            "ProcessingJobStatus": job["ProcessingJobStatus"],
            "CreationTime": to_json(job["CreationTime"]),
            "ProcessingEndTime": to_json(job.get("ProcessingEndTime")),
        }
    return {
        "TrainingJobName": job["TrainingJobName"],
        "TrainingJobArn": job["TrainingJobArn"],
        "TrainingJobStatus": job["TrainingJobStatus"],
        "SecondaryStatus": job["SecondaryStatus"],
        "CreationTime": to_json(job["CreationTime"]),
        "TrainingEndTime": to_json(job.get("TrainingEndTime")),
    }


def _row(job: Job, *, now: datetime) -> Row:
    created: datetime = job["CreationTime"]
    ended = job.get("TrainingEndTime") or job.get("ProcessingEndTime") or now
    seconds = max((ended - created).total_seconds(), 0.0)
    created_text = f"{created.astimezone():%Y-%m-%d %H:%M:%S}"
    return name_of(job), kind_of(job).word, status_of(job), created_text, duration_text(seconds)
