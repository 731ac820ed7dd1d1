"""`trainyard reproduce`: run a job again from what was recorded of it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.lineage.reproduction import (
    Difference,
    changed_sources,
    differences_of,
    require_same_sources,
    start_again,
)
from trainyard._sdk.lineage.tree import await_recorded, read_record
from trainyard._sdk.training.job import TrainingJobHandle
from trainyard.cli.jobs.lookup import exit_code_of, find_job, job_argument, open_api
from trainyard.cli.terminal.console import CommandWithExamples, json_option, say, yard_option
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.tables import print_table
from trainyard.foundation.errors import NotFound


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard reproduce mnist-1                      refuse if its data or code has changed",
        "trainyard reproduce mnist-1 --allow-changed      run it with what is there now",
    ),
)
@job_argument
@click.option("--name", default="", metavar="NAME", help="Name of the new job.  [default: again- and the time]")
@click.option("--allow-changed", is_flag=True, help="Run it even if an input or the code has changed.")
@yard_option
@json_option
def reproduce(job: str, name: str, allow_changed: bool, folder: Path | None, as_json: JsonFields | None) -> int:
    """Run a job again with the same inputs by content, code and options, and show in what the two differ.

    A removed job can be named in full: its record stays.
    """
    with open_api(folder) as api:
        record = _read_record(api, job)
        if allow_changed:
            for sentence in changed_sources(record):
                say(f"note: {sentence}")
        else:
            require_same_sources(record)
        again = start_again(api, record, name=name)
        say(f"Running {record['TrainingJobName']} again as {again}.")
        code = _wait(api, again)
        after = await_recorded(lambda: read_record(api, again), since=datetime.now(UTC), now=datetime.now(UTC))
        found = differences_of(record, after)
    _print(record["TrainingJobName"], again, found, as_json)
    return code


def _read_record(api: Api, job: str) -> dict[str, Any]:
    try:
        name, ended_at = _find(api, job)
        return await_recorded(lambda: read_record(api, name, checks_inputs=True), since=ended_at, now=datetime.now(UTC))
    except NotFound as error:
        raise Failure(
            f'Nothing is recorded of the training job "{job}".',
            why="A job is recorded when it ends.",
            next_step="trainyard ls",
            code=ExitCode.NOT_FOUND,
        ) from error


def _find(api: Api, job: str) -> tuple[str, datetime]:
    """Return the name of a job and when it last changed. It may have been removed since."""
    try:
        found = find_job(api, job)
    except Failure as error:
        if error.code != ExitCode.NOT_FOUND:
            raise
        return job, datetime.fromtimestamp(0, UTC)
    return found["TrainingJobName"], found["LastModifiedTime"]


def _wait(api: Api, name: str) -> ExitCode:
    description = TrainingJobHandle(api, name).wait_for_end()
    say(f"{name} is {description['TrainingJobStatus']}. {description.get('FailureReason', '')}".rstrip())
    return exit_code_of(description)


def _print(before: str, after: str, found: list[Difference], as_json: JsonFields | None) -> None:
    if as_json:
        differences = [{"Kind": each.kind, "Name": each.name, "Values": [each.before, each.after]} for each in found]
        print_json({"Jobs": [before, after], "Differences": differences}, as_json, items="Differences")
        return
    if not found:
        click.echo("The two jobs agree in metrics, inputs, code, packages and results.")
        return
    rows = [[each.kind, each.name, each.before or "-", each.after or "-"] for each in found]
    print_table(["", "", before, after], rows)
