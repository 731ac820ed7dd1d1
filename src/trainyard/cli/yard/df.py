"""`trainyard df`: what uses the disk, by user and job."""

from pathlib import Path
from typing import Any

import click

from trainyard._sdk.storage.disk_use import DiskUse, JobUse, measure_disk_use
from trainyard.cli.jobs.lookup import find_remote_access, open_api, to_json
from trainyard.cli.terminal.console import CommandWithExamples, json_option, say, size_text, yard_option
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.progress import spinner
from trainyard.cli.terminal.tables import Column, Row, print_table

_SIZES = [Column(title, align="right") for title in ("objects", "job files", "packages", "total")]


@click.command(
    cls=CommandWithExamples,
    examples=("trainyard df", "trainyard df -n 50            more jobs", "trainyard df --json Users"),
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="How many jobs to show: those with the largest files.",
)
@yard_option
@json_option
def df(limit: int, folder: Path | None, as_json: JsonFields | None) -> None:
    """Show what uses the disk: objects, the files of jobs, and the packages that jobs installed.

    Administrators see what all users use. The files of each job are measured, which takes a while for many jobs.
    """
    with open_api(folder) as api, spinner("Measuring the files of jobs"):
        use = measure_disk_use(api, jobs=limit)
    if as_json:
        print_json(_document(use), as_json)
        return
    users = sorted(use.users.items(), key=lambda each: each[1].total_bytes, reverse=True)
    rows: list[Row] = []
    for name, each in users:
        sizes = (each.objects_bytes, each.jobs_bytes, each.environments_bytes, each.total_bytes)
        rows.append([name, *map(size_text, sizes)])
    print_table(["user", *_SIZES], rows)
    _print_section(
        ["bucket", "user", Column("objects", align="right"), Column("size", align="right")],
        [[b["BucketName"], b["UserName"], f"{b['Objects']:,}", size_text(b["Bytes"])] for b in use.buckets],
    )
    _print_section(
        ["job", "user", "status", Column("files", align="right"), Column("artifacts", align="right")],
        [[j.name, j.user, j.status, size_text(j.files_bytes), size_text(j.artifacts_bytes)] for j in use.largest_jobs],
    )
    if use.free_bytes is not None:
        say(f"\n{size_text(use.free_bytes)} of the disk is free.")
    # Garbage is collected on the machine of the yard.
    gc = "" if find_remote_access(folder) else "; `trainyard gc` removes what nothing uses any more"
    say(f"`trainyard rm JOB --data` removes a job with its objects{gc}.")


def _print_section(columns: list[Column | str], rows: list[Row]) -> None:
    if rows:
        click.echo()
        print_table(columns, rows)


def _document(use: DiskUse) -> dict[str, Any]:
    users = [
        {
            "UserName": name,
            "ObjectsBytes": each.objects_bytes,
            "JobFilesBytes": each.jobs_bytes,
            "Jobs": each.jobs,
            "EnvironmentsBytes": each.environments_bytes,
        }
        for name, each in sorted(use.users.items())
    ]
    return {
        "Users": users,
        "Buckets": [dict(bucket) for bucket in use.buckets],
        "LargestJobs": [_job_values(job) for job in use.largest_jobs],
        "FreeBytes": use.free_bytes,
    }


def _job_values(job: JobUse) -> dict[str, Any]:
    return {
        "TrainingJobName": job.name,
        "UserName": job.user,
        "Status": job.status,
        "EndTime": to_json(job.ended_at),
        "FilesBytes": job.files_bytes,
        "ArtifactsBytes": job.artifacts_bytes,
    }
