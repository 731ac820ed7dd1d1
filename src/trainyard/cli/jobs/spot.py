"""`trainyard spot` and `trainyard interrupt`: statistics of spot jobs, and interruptions to test them."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.training.console import duration_text, price_text
from trainyard._sdk.training.interruptions import interruptions
from trainyard._sdk.training.stream import FINAL
from trainyard.cli.jobs.lookup import find_job, job_argument, open_api, to_json
from trainyard.cli.terminal.console import CommandWithExamples, home_option, json_option, print_json, say
from trainyard.foundation.jobs.training.interruptions import InterruptionSchedule

_COLUMNS = ("type", "jobs", "interruptions", "median resume", "longest", "training", "billed", "saved", "")


@click.command(
    cls=CommandWithExamples,
    examples=("trainyard spot", "trainyard spot --json | jq .Total.SavingInPercent"),
)
@home_option
@json_option
def spot(folder: Path | None, as_json: bool) -> None:
    """Show the interruptions and savings of ended spot jobs, by instance type.

    The columns are: the number of interruptions, the median and the longest time until a job trained again, the
    training time, the billed time, and the savings in percent and in dollars at the on-demand price. Administrators see
    the jobs of all users. Running jobs are not included; removed jobs are.
    """
    with open_api(folder) as api:
        found = api.call("trainyard", "DescribeSpot")
    if as_json:
        print_json(to_json(found))
        return
    if not found["Total"]["Jobs"]:
        say("No spot job has ended yet; `trainyard run SCRIPT --use_spot_instances` starts one.")
        return
    for line in spot_lines(found):
        click.echo(line)


def spot_lines(found: Mapping[str, Any]) -> list[str]:
    """Return a table with a row for each instance type and, if there are several, a total."""
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
@home_option
def interrupt(job: str, mean_s: float | None, seed: int, max_times: int | None, folder: Path | None) -> None:
    """Interrupt a running spot job. Its script gets SIGTERM and, after the grace period, SIGKILL.

    The job resumes when there is capacity, with the files under its checkpoint path. With --every, the command runs
    until the job has ended; Ctrl-C stops the interruptions, not the job.
    """
    with open_api(folder) as api:
        found = find_job(api, job)
        name = found["TrainingJobName"]
        if mean_s is not None and found["EnableManagedSpotTraining"] and found["TrainingJobStatus"] not in FINAL:
            _interrupt_repeatedly(api, name, InterruptionSchedule(seed, timedelta(seconds=mean_s), max_times))
            return
        api.call("trainyard", "InterruptJob", TrainingJobName=name)
    say(f'Training job "{name}" is interrupted; it resumes when there is capacity.')


def _interrupt_repeatedly(api: Api, name: str, schedule: InterruptionSchedule) -> None:
    count = 0
    for each in interruptions(api, name, schedule):
        count += 1
        say(f"Interrupted attempt {each.attempt} after {duration_text(each.trained.total_seconds())} of training.")
    say(f'Training job "{name}" has ended after {count} interruption{"" if count == 1 else "s"}.')
