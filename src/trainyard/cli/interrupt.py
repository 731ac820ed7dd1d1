"""`trainyard interrupt`: take the place of a spot job away."""

from pathlib import Path

import click

from trainyard.cli.console import Command, home_option, say
from trainyard.cli.jobs import calls, find_job, job_argument


@click.command(
    cls=Command,
    short_help="Interrupt a spot job, as a cloud would.",
    examples=("trainyard interrupt @last", "trainyard interrupt mnist-1 && trainyard logs -f mnist-1"),
)
@job_argument
@home_option
def interrupt(job: str, folder: Path | None) -> None:
    """Interrupt a running spot job: SIGTERM to its script, and SIGKILL after the grace. It goes on when there is room.

    What the script keeps under its checkpoint path is there again when it goes on.
    """
    with calls(folder) as api:
        name = find_job(api, job)["TrainingJobName"]
        api.call("trainyard", "InterruptJob", TrainingJobName=name)
    say(f'Training job "{name}" is interrupted, and goes on when there is room.')
