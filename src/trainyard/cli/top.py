"""`trainyard top`: the jobs and the machine, live."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, home_option, json_option, print_json
from trainyard.cli.drawing import block
from trainyard.cli.jobs import calls, plain
from trainyard.cli.screen import Screen, can_draw
from trainyard.cli.yard_view import yard_lines
from trainyard.connection import Api
from trainyard.foundation.errors import Unavailable

_LEAVE = ("q", "Q", "\x1b", "\x04")


@click.command(
    cls=Command,
    short_help="Watch the jobs and the machine.",
    examples=(
        "trainyard top                   until q or Ctrl-C",
        "trainyard top --once            one look, as also when the output is no terminal",
        "trainyard top --json | jq .SlotsInUse",
    ),
)
@click.option("--once", is_flag=True, help="Show one look and return.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@home_option
@json_option
def top(once: bool, interval_s: float, folder: Path | None, as_json: bool) -> None:
    """Watch what runs on the yard: jobs with their status, time and share, the queue, slots, CPU and memory."""
    with calls(folder) as api:
        if as_json:
            print_json(plain(_yard(api)))
        elif once or not can_draw(os.environ):
            for line in _look(api):
                click.echo(line)
        else:
            with contextlib.suppress(KeyboardInterrupt):
                _watch(lambda: _look(api), interval_s)


def _watch(look: Callable[[], Sequence[str]], interval_s: float) -> None:
    lines: Sequence[str] = ()
    with Screen(sys.stdin.fileno(), sys.stdout) as screen:
        while True:
            began = time.monotonic()
            try:
                lines = [*look(), "", "q leaves"]
            except Unavailable as error:  # a restart takes a second or two
                lines = [*[line for line in lines if not line.startswith("! ")], f"! {error.message}"]
            screen.draw(lines)
            while (left := began + interval_s - time.monotonic()) > 0:
                key = screen.wait(left)
                if key in _LEAVE:
                    return
                screen.draw(lines)


def _look(api: Api) -> list[str]:
    waiting = [job for job in _in_progress(api) if job["SecondaryStatus"] in ("Pending", "Interrupted")]
    return yard_lines(_yard(api), waiting, now=datetime.now(UTC), filled=block())


def _yard(api: Api) -> dict[str, Any]:
    return api.call("trainyard", "DescribeYard")


def _in_progress(api: Api) -> list[dict[str, Any]]:
    asked = {"StatusEquals": "InProgress", "SortBy": "CreationTime", "SortOrder": "Ascending", "MaxResults": 100}
    found: list[dict[str, Any]] = api.call("sagemaker", "ListTrainingJobs", **asked)["TrainingJobSummaries"]
    return found
