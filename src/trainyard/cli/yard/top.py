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
from trainyard.cli.terminal.blocks import Block, Title, print_blocks
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    json_option,
    yard_option,
)
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.live import QUIT_KEYS, LiveView, can_draw
from trainyard.cli.yard.yard_text import yard_blocks
from trainyard.foundation.errors import Unavailable


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
@yard_option
@json_option
def top(once: bool, interval_s: float, folder: Path | None, as_json: JsonFields | None) -> None:
    """Watch the yard: its jobs with status, time and resources, the queue, slots, CPU and memory."""
    with open_api(folder) as api:
        if as_json:
            print_json(to_json(_describe_yard(api)), as_json)
        elif once or not can_draw():
            print_blocks(_read_blocks(api))
        else:
            with contextlib.suppress(KeyboardInterrupt):
                _watch(lambda: _read_blocks(api), interval_s)


def _watch(read_blocks: Callable[[], Sequence[Block]], interval_s: float) -> None:
    last: Sequence[Block] = ()
    with LiveView(sys.stdin.fileno(), sys.stdout) as view:
        while True:
            started = time.monotonic()
            try:
                last = read_blocks()
                shown = [*last, "", "q quits"]
            # The yard may be restarting, which takes a second or two.
            except Unavailable as error:
                shown = [*last, "", Title(error.message)]
            view.draw(shown)
            while (left := started + interval_s - time.monotonic()) > 0:
                if view.wait(left) in QUIT_KEYS:
                    return
                view.draw(shown)


def _read_blocks(api: Api) -> list[Block]:
    waiting = [job for job in _in_progress(api) if job["SecondaryStatus"] in ("Pending", "Interrupted")]
    return yard_blocks(_describe_yard(api), waiting, now=datetime.now(UTC))


def _describe_yard(api: Api) -> dict[str, Any]:
    return api.call("trainyard", "DescribeYard")


def _in_progress(api: Api) -> list[dict[str, Any]]:
    request = {"StatusEquals": "InProgress", "SortBy": "CreationTime", "SortOrder": "Ascending", "MaxResults": 100}
    found: list[dict[str, Any]] = api.call("sagemaker", "ListTrainingJobs", **request)["TrainingJobSummaries"]
    return found
