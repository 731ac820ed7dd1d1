"""`trainyard stop`: end training jobs."""

from pathlib import Path

import click

from trainyard.cli.console import Command, home_option, say
from trainyard.cli.jobs import calls, find_job
from trainyard.following import FINAL
from trainyard.outcomes import summary
from trainyard.training_job import TrainingJob


@click.command(
    cls=Command,
    short_help="Stop training jobs.",
    examples=("trainyard stop @last", "trainyard stop mnist-1 mnist-2 --wait"),
)
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@click.option("--wait", is_flag=True, help="Return when they have ended.")
@home_option
def stop(names: tuple[str, ...], wait: bool, folder: Path | None) -> None:
    """Stop training jobs: SIGTERM to their scripts, and SIGKILL after the grace. What they saved is kept."""
    with calls(folder) as api:
        jobs = [find_job(api, name) for name in names]
        for job in jobs:
            name = job["TrainingJobName"]
            if job["TrainingJobStatus"] in FINAL:
                say(f'Training job "{name}" is {job["TrainingJobStatus"]} already.')
                continue
            TrainingJob(api, name).stop()
            if not wait:
                say(f'Training job "{name}" is stopping.')
        for job in jobs if wait else ():
            found = TrainingJob(api, job["TrainingJobName"])
            say(summary(found.wait_for_end(), found.details()))
