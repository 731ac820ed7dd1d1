"""`trainyard logs`: what a training job wrote, or writes."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from trainyard.cli.console import Command, home_option, json_option, say
from trainyard.cli.failure import ExitCode
from trainyard.cli.jobs import calls, find_job, job_argument
from trainyard.connection import Api
from trainyard.following import follow
from trainyard.job_logs import LogLine, last_lines, written_lines
from trainyard.showing import Show
from trainyard.training_job import detached, instance_count


@click.command(
    cls=Command,
    short_help="Show what a training job wrote.",
    examples=(
        "trainyard logs @last                     all that the latest job wrote",
        "trainyard logs -f @last                  … and goes on until it has ended",
        "trainyard logs mnist --tail 20 --instance algo-2",
        "trainyard logs @last --json              one JSON object per line",
    ),
)
@job_argument
@click.option(
    "-f", "--follow", "follows", is_flag=True, help="Go on until the job has ended. Ctrl-C leaves it running."
)
@click.option("--tail", type=click.IntRange(0, 10_000), metavar="N", help="Only the last N lines of each instance.")
@click.option("--instance", metavar="NAME", help="Only lines of one instance, such as algo-1.")
@home_option
@json_option
def logs(
    job: str, follows: bool, tail: int | None, instance: str | None, folder: Path | None, as_json: bool
) -> ExitCode:
    """Show what a training job wrote, in the order of each instance."""
    with calls(folder) as api:
        description = find_job(api, job)
        name = description["TrainingJobName"]
        show = Show(sys.stdout, sys.stderr, instance_count=1 if instance else instance_count(description))
        try:
            for line in _lines(api, name, tail=tail, follows=follows):
                if instance not in (None, line.instance):
                    continue
                if as_json:
                    click.echo(_as_json(line))
                else:
                    show.line(line)
        except KeyboardInterrupt:
            say(f"\n{detached(name)}" if follows else "interrupted")
            return ExitCode.INTERRUPTED
    return ExitCode.OK


def _lines(api: Api, name: str, *, tail: int | None, follows: bool) -> Iterator[LogLine]:
    if follows:
        return (event for event in follow(api, name, tail=tail) if isinstance(event, LogLine))
    return written_lines(api, name) if tail is None else last_lines(api, name, tail)


def _as_json(line: LogLine) -> str:
    at = datetime.fromtimestamp(line.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return json.dumps({"instance": line.instance, "time": at, "message": line.text})
