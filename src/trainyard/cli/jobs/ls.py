"""`trainyard ls`: list training and processing jobs."""

import heapq
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.training.console import duration_text
from trainyard.cli.jobs.kinds import KINDS, PROCESSING, Job, JobKind, kind_of, name_of, status_of
from trainyard.cli.jobs.lookup import open_api, to_json
from trainyard.cli.jobs.selection import is_pattern, longest_literal
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
_NAME_PART = re.compile(r"[a-zA-Z0-9-]+")
_STATUSES = ("InProgress", "Completed", "Failed", "Stopping", "Stopped")


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard ls                          the latest twenty",
        "trainyard ls --status Failed -n 100",
        "trainyard ls --name mnist --json      jobs with mnist in their names",
        "trainyard ls --name 'mnist-*-lr'      jobs whose names fit a pattern",
    ),
)
@click.option(
    "--status",
    metavar="STATUS",
    type=WordChoice(_STATUSES),
    help=f"Only jobs with this status: {', '.join(_STATUSES)}.",
)
@click.option(
    "--name", metavar="TEXT", help="Only jobs with this text in their names, or whose names fit a pattern with * or ?."
)
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of jobs."
)
@yard_option
@json_option
def ls(status: str | None, name: str | None, limit: int, folder: Path | None, as_json: JsonFields | None) -> None:
    """List training and processing jobs, newest first."""
    filters = {"StatusEquals": status} if status else {}
    pattern = name if name and is_pattern(name) else ""
    text = longest_literal(pattern) if pattern else name
    if text and not _NAME_PART.fullmatch(text):
        raise click.UsageError(f'No job can have "{text}" in its name, which has only letters, digits and dashes.')
    filters |= {"NameContains": text} if text else {}
    with open_api(folder) as api:
        jobs = list(islice(_latest(api, limit, filters, pattern=pattern), limit))
    if as_json:
        print_json({"Jobs": [_values(job) for job in jobs]}, as_json, items="Jobs")
        return
    if not jobs:
        say("No job matches." if filters or pattern else "There are no jobs; `trainyard run SCRIPT` starts one.")
        return
    print_table(_COLUMNS, [_row(job, now=datetime.now(UTC)) for job in jobs])


def _latest(api: Api, limit: int, filters: Mapping[str, Any], *, pattern: str) -> Iterator[Job]:
    """Yield the jobs of all kinds, newest first, in pages that are no larger than the limit."""
    streams = [_of_kind(api, kind, limit, filters, pattern=pattern) for kind in KINDS]
    return heapq.merge(*streams, key=lambda job: job["CreationTime"], reverse=True)


def _of_kind(api: Api, kind: JobKind, limit: int, filters: Mapping[str, Any], *, pattern: str) -> Iterator[Job]:
    request: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending", **filters}
    while True:
        # A pattern can leave out most jobs of a page.
        page = api.call("sagemaker", f"List{kind.shape}s", MaxResults=100 if pattern else min(limit, 100), **request)
        jobs = page[kind.summaries_member]
        yield from (job for job in jobs if not pattern or fnmatchcase(name_of(job), pattern))
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
