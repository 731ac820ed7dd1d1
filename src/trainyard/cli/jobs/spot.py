"""`trainyard spot` and `trainyard interrupt`: statistics of spot jobs, and interruptions to test them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.training.console import duration_text, price_text
from trainyard._sdk.training.interruptions import interruptions
from trainyard._sdk.training.stream import FINAL
from trainyard.cli.jobs.lookup import find_job, job_argument, open_api, to_json
from trainyard.cli.terminal.blocks import Table
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    json_option,
    result_option,
    say,
    yard_option,
)
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.tables import Column, Row, print_table
from trainyard.foundation.jobs.training.interruptions import InterruptionSchedule

_NUMBERS = ("jobs", "interruptions", "median resume", "longest", "training", "billed", "saved", "in dollars")
_COLUMNS: Sequence[Column | str] = ("type", *(Column(title, "right") for title in _NUMBERS))


@click.command(
    cls=CommandWithExamples,
    examples=("trainyard spot", "trainyard spot --json | jq .Total.SavingInPercent"),
)
@click.option(
    "--prices", is_flag=True, help="Show the savings in dollars too, at approximate prices if catalog.toml sets none."
)
@yard_option
@json_option
def spot(prices: bool, folder: Path | None, as_json: JsonFields | None) -> None:
    """Show the interruptions and savings of ended spot jobs, by instance type.

    The columns are: the number of interruptions, the median and the longest time until a job trained again, the
    training time, the billed time, the savings in percent and, if prices are set, in dollars at the on-demand price.
    Administrators see the jobs of all users. Running jobs are not included; removed jobs are.
    """
    with open_api(folder) as api:
        found = api.call("trainyard", "DescribeSpot")
    if as_json:
        print_json(to_json(found), as_json)
        return
    if not found["Total"]["Jobs"]:
        say("No spot job has ended yet; `trainyard run SCRIPT --use-spot-instances` starts one.")
        return
    table = spot_table(found, shows_price=prices or found.get("PriceIsSet", False))
    print_table(table.columns, table.rows)


def spot_table(found: Mapping[str, Any], *, shows_price: bool) -> Table:
    """Return a table with a row for each instance type and, if there are several, a total."""
    uses = found["Types"] if len(found["Types"]) == 1 else [*found["Types"], found["Total"]]
    columns = _COLUMNS if shows_price else _COLUMNS[:-1]
    return Table(columns, [_row(use)[: len(columns)] for use in uses])


def _row(use: Mapping[str, Any]) -> Row:
    percent = use.get("SavingInPercent")
    return (
        "all" if use["InstanceType"] == "*" else use["InstanceType"],
        str(use["Jobs"]),
        str(use["Interruptions"]),
        _time(use.get("MedianResumeInSeconds")),
        _time(use.get("WorstResumeInSeconds")),
        duration_text(use["TrainingTimeInSeconds"]),
        duration_text(use["BillableTimeInSeconds"]),
        "-" if percent is None else f"{percent:.0f}%",
        price_text(use["Saved"]),
    )


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration_text(float(seconds))


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard interrupt @last",
        "trainyard interrupt mnist-1 && trainyard logs -f mnist-1",
        "trainyard interrupt mnist-1 --every 60 --seed 7       repeatedly, after a minute of training on average",
    ),
)
@job_argument
@click.option(
    "--every",
    "mean_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Interrupt repeatedly until the job has ended, each time after this much training on average.",
)
@click.option(
    "--seed",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="With --every: seed of the interruption times. The same seed gives the same times.",
)
@click.option(
    "--times",
    "max_times",
    metavar="N",
    type=click.IntRange(min=1),
    help="With --every: maximum number of interruptions. Default: no limit.",
)
@yard_option
@result_option("TrainingJobName", "Interruptions")
def interrupt(
    job: str,
    mean_s: float | None,
    seed: int,
    max_times: int | None,
    folder: Path | None,
    as_json: JsonFields | None,
) -> None:
    """Interrupt a running spot job. Its script gets SIGTERM and, after the grace period, SIGKILL.

    The job resumes when there is capacity, with the files under its checkpoint path. With --every, the command runs
    until the job has ended; Ctrl-C stops the interruptions, not the job.
    """
    with open_api(folder) as api:
        found = find_job(api, job)
        name = found["TrainingJobName"]
        if mean_s is not None and found["EnableManagedSpotTraining"] and found["TrainingJobStatus"] not in FINAL:
            schedule = InterruptionSchedule(seed, timedelta(seconds=mean_s), max_times)
            count = _interrupt_repeatedly(api, name, schedule)
            outcome = f'Training job "{name}" has ended after {count} interruption{"" if count == 1 else "s"}.'
        else:
            api.call("trainyard", "InterruptJob", TrainingJobName=name)
            count, outcome = 1, f'Training job "{name}" is interrupted; it resumes when there is capacity.'
    if as_json:
        print_json({"TrainingJobName": name, "Interruptions": count}, as_json)
    else:
        say(outcome)


def _interrupt_repeatedly(api: Api, name: str, schedule: InterruptionSchedule) -> int:
    count = 0
    for each in interruptions(api, name, schedule):
        count += 1
        say(f"Interrupted attempt {each.attempt} after {duration_text(each.trained.total_seconds())} of training.")
    return count
