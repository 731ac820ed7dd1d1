"""`trainyard top`: a live view of the jobs and the machine."""

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard.cli.jobs.lookup import open_api, to_json
from trainyard.cli.terminal.charts import block
from trainyard.cli.terminal.console import CommandWithExamples, environment, home_option, json_option, print_json
from trainyard.cli.terminal.screen import Screen, can_draw
from trainyard.cli.yard.yard_text import yard_lines
from trainyard.foundation.errors import Unavailable

_QUIT_KEYS = ("q", "Q", "\x1b", "\x04")


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard top                   until q or Ctrl-C",
        "trainyard top --once            once; the default if the output is not a terminal",
        "trainyard top --json | jq .SlotsInUse",
    ),
)
@click.option("--once", is_flag=True, help="Print the state once and return.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between updates.",
)
@home_option
@json_option
def top(once: bool, interval_s: float, folder: Path | None, as_json: bool) -> None:
    """Watch the yard: its jobs with status, time and resources, the queue, slots, CPU and memory."""
    with open_api(folder) as api:
        if as_json:
            print_json(to_json(_describe_yard(api)))
        elif once or not can_draw(environment()):
            for line in _read_lines(api):
                click.echo(line)
        else:
            with contextlib.suppress(KeyboardInterrupt):
                _watch(lambda: _read_lines(api), interval_s)


def _watch(read_lines: Callable[[], Sequence[str]], interval_s: float) -> None:
    lines: Sequence[str] = ()
    with Screen(sys.stdin.fileno(), sys.stdout) as screen:
        while True:
            started = time.monotonic()
            try:
                lines = [*read_lines(), "", "q quits"]
            # The yard may be restarting, which takes a second or two.
            except Unavailable as error:
                lines = [*[line for line in lines if not line.startswith("! ")], f"! {error.message}"]
            screen.draw(lines)
            while (left := started + interval_s - time.monotonic()) > 0:
                key = screen.wait(left)
                if key in _QUIT_KEYS:
                    return
                screen.draw(lines)


def _read_lines(api: Api) -> list[str]:
    waiting = [job for job in _in_progress(api) if job["SecondaryStatus"] in ("Pending", "Interrupted")]
    return yard_lines(_describe_yard(api), waiting, now=datetime.now(UTC), filled=block())


def _describe_yard(api: Api) -> dict[str, Any]:
    return api.call("trainyard", "DescribeYard")


def _in_progress(api: Api) -> list[dict[str, Any]]:
    request = {"StatusEquals": "InProgress", "SortBy": "CreationTime", "SortOrder": "Ascending", "MaxResults": 100}
    found: list[dict[str, Any]] = api.call("sagemaker", "ListTrainingJobs", **request)["TrainingJobSummaries"]
    return found
