"""`trainyard spot`: what spot jobs went through, and what they saved."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, home_option, json_option, print_json, say
from trainyard.cli.jobs import calls, plain
from trainyard.showing import clock_text, money

_COLUMNS = ("type", "jobs", "interrupted", "resumed after", "at worst", "trained", "billed", "saved", "")


@click.command(
    cls=Command,
    short_help="Show what spot jobs went through and saved.",
    examples=("trainyard spot", "trainyard spot --json | jq .Total.SavingInPercent"),
)
@home_option
@json_option
def spot(folder: Path | None, as_json: bool) -> None:
    """Show what the spot jobs that have ended went through and saved, for each instance type.

    That is how often they were interrupted, how long it took until they trained again, in the median and at worst, how
    many seconds they trained and were billed, and what the difference is worth at the price on demand. An administrator
    sees those of all users. Jobs that go on count when they have ended, and still do when they are removed.
    """
    with calls(folder) as api:
        found = api.call("trainyard", "DescribeSpot")
    if as_json:
        print_json(plain(found))
        return
    if not found["Total"]["Jobs"]:
        say("No spot job has ended yet; `trainyard run SCRIPT --use_spot_instances` starts one.")
        return
    for line in spot_lines(found):
        click.echo(line)


def spot_lines(found: Mapping[str, Any]) -> list[str]:
    """A table, with all types together at the end where there are several."""
    uses = found["Types"] if len(found["Types"]) == 1 else [*found["Types"], found["Total"]]
    rows = [_COLUMNS, *(_row(use) for use in uses)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_cells(row, widths)).rstrip() for row in rows]


def _cells(row: tuple[str, ...], widths: list[int]) -> list[str]:
    first, *others = zip(row, widths, strict=True)
    return [f"{first[0]:<{first[1]}}", *(f"{cell:>{width}}" for cell, width in others)]


def _row(use: Mapping[str, Any]) -> tuple[str, ...]:
    percent = use.get("SavingInPercent")
    return (
        "all" if use["InstanceType"] == "*" else use["InstanceType"],
        str(use["Jobs"]),
        str(use["Interruptions"]),
        _time(use.get("MedianResumeInSeconds")),
        _time(use.get("WorstResumeInSeconds")),
        clock_text(use["TrainingTimeInSeconds"]),
        clock_text(use["BillableTimeInSeconds"]),
        "-" if percent is None else f"{percent:.0f}%",
        money(use["Saved"]),
    )


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else clock_text(float(seconds))
