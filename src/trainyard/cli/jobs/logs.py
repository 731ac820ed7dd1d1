"""`trainyard logs`: the log of a job."""

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.processing.job import detached_message as processing_detached_message
from trainyard._sdk.processing.job import instance_count as processing_instance_count
from trainyard._sdk.training.cloudwatch import LogLine, read_log, read_log_tail
from trainyard._sdk.training.console import EventPrinter
from trainyard._sdk.training.job import detached_message, instance_count
from trainyard._sdk.training.stream import follow_job
from trainyard.cli.jobs.kinds import KINDS, TRAINING, JobKind, kind_of, name_of, title_of
from trainyard.cli.jobs.lookup import find_job, job_argument, open_api
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    json_option,
    say,
    yard_option,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, json_line


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard logs @last                     the log of the latest job",
        "trainyard logs -f @last                  follow it until the job has ended",
        "trainyard logs mnist --tail 20 --instance algo-2",
        "trainyard logs @last --json              one JSON object per line",
    ),
)
@job_argument
@click.option(
    "-f",
    "--follow",
    "follows",
    is_flag=True,
    help="Follow the log until the job has ended. Ctrl-C leaves the job running.",
)
@click.option("--tail", type=click.IntRange(0, 10_000), metavar="N", help="Only the last N lines of each instance.")
@click.option("--instance", metavar="NAME", help="Only lines of one instance, such as algo-1.")
@yard_option
@json_option
def logs(
    job: str, follows: bool, tail: int | None, instance: str | None, folder: Path | None, as_json: JsonFields | None
) -> ExitCode:
    """Show the log of a training or processing job, instance by instance."""
    with open_api(folder) as api:
        description = find_job(api, job, kinds=KINDS)
        name, kind = name_of(description), kind_of(description)
        _require_instance(description, instance)
        printer = EventPrinter(sys.stdout, sys.stderr, instance_count=1 if instance else _instance_count(description))
        is_empty = True
        try:
            for line in _lines(api, name, kind, tail=tail, follows=follows):
                if instance not in (None, line.instance):
                    continue
                is_empty = False
                if as_json:
                    click.echo(_as_json(line, as_json))
                else:
                    printer.print_line(line)
        except KeyboardInterrupt:
            say(f"\n{_detached_message(description)}" if follows else "interrupted")
            return ExitCode.INTERRUPTED
    if is_empty and tail != 0:
        say(f'The log of {kind.noun} "{name}" is empty{f" for {instance}" if instance else ""}.')
    return ExitCode.OK


def _require_instance(description: Mapping[str, Any], instance: str | None) -> None:
    names = [f"algo-{number}" for number in range(1, _instance_count(description) + 1)]
    if instance is not None and instance not in names:
        raise Failure(
            f'{title_of(description)} has no instance "{instance}".',
            why=f"It has {names[0]}." if len(names) == 1 else f"It has {names[0]} to {names[-1]}.",
            code=ExitCode.NOT_FOUND,
        )


def _instance_count(description: Mapping[str, Any]) -> int:
    return (instance_count if kind_of(description) is TRAINING else processing_instance_count)(description)


def _detached_message(description: Mapping[str, Any]) -> str:
    message = detached_message if kind_of(description) is TRAINING else processing_detached_message
    return message(name_of(description))


def _lines(api: Api, name: str, kind: JobKind, *, tail: int | None, follows: bool) -> Iterator[LogLine]:
    if follows:
        events = follow_job(api, name, tail=tail, kind=kind.word)
        return (event for event in events if isinstance(event, LogLine))
    if tail is None:
        return read_log(api, name, group=kind.log_group)
    return read_log_tail(api, name, tail, group=kind.log_group)


def _as_json(line: LogLine, fields: JsonFields) -> str:
    at = datetime.fromtimestamp(line.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return json_line({"Instance": line.instance, "Time": at, "Message": line.text}, fields)
