"""`trainyard interrupt`: take the place of a spot job away, once or as a schedule says."""

from datetime import timedelta
from pathlib import Path

import click

from trainyard.cli.console import Command, home_option, say
from trainyard.cli.jobs import calls, find_job, job_argument
from trainyard.connection import Api
from trainyard.following import FINAL
from trainyard.foundation.interruptions import InterruptionSchedule
from trainyard.interrupting import interruptions
from trainyard.showing import clock_text


@click.command(
    cls=Command,
    short_help="Interrupt a spot job, as a cloud would.",
    examples=(
        "trainyard interrupt @last",
        "trainyard interrupt mnist-1 && trainyard logs -f mnist-1",
        "trainyard interrupt mnist-1 --every 60 --seed 7       after a minute of training on average, again and again",
    ),
)
@job_argument
@click.option(
    "--every",
    "mean_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Interrupt it again and again until it has ended, each time after so much training on average.",
)
@click.option(
    "--seed",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="With --every: decides the times; the same seed gives the same.",
)
@click.option(
    "--times", "most", metavar="N", type=click.IntRange(min=1), help="With --every: how often at most. Default: no end."
)
@home_option
def interrupt(job: str, mean_s: float | None, seed: int, most: int | None, folder: Path | None) -> None:
    """Interrupt a running spot job: SIGTERM to its script, and SIGKILL after the grace. It goes on when there is room.

    What the script keeps under its checkpoint path is there again when it goes on. With --every the command goes on
    until the job has ended; Ctrl-C leaves the job alone from then on.
    """
    with calls(folder) as api:
        found = find_job(api, job)
        name = found["TrainingJobName"]
        if mean_s is not None and found["EnableManagedSpotTraining"] and found["TrainingJobStatus"] not in FINAL:
            _play(api, name, InterruptionSchedule(seed, timedelta(seconds=mean_s), most))
            return
        api.call("trainyard", "InterruptJob", TrainingJobName=name)
    say(f'Training job "{name}" is interrupted, and goes on when there is room.')


def _play(api: Api, name: str, schedule: InterruptionSchedule) -> None:
    count = 0
    for each in interruptions(api, name, schedule):
        count += 1
        say(f"Interrupted attempt {each.attempt} after {clock_text(each.trained.total_seconds())} of training.")
    say(f'Training job "{name}" has ended, after {count} interruption{"" if count == 1 else "s"}.')
