"""`trainyard rm`: forget training jobs."""

from pathlib import Path

import click

from trainyard.cli.console import Command, home_option, say
from trainyard.cli.failure import Failure
from trainyard.cli.jobs import calls, find_job
from trainyard.following import FINAL


@click.command(
    cls=Command,
    short_help="Forget training jobs that have ended.",
    examples=("trainyard rm @last", "trainyard rm mnist-1 mnist-2"),
)
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@home_option
def rm(names: tuple[str, ...], folder: Path | None) -> None:
    """Forget training jobs with their logs and metrics. Their models and outputs on S3 stay."""
    with calls(folder) as api:
        jobs = [find_job(api, name) for name in names]
        for job in jobs:
            if job["TrainingJobStatus"] not in FINAL:
                name = job["TrainingJobName"]
                raise Failure(
                    f'Training job "{name}" is {job["TrainingJobStatus"]}; only jobs that have ended can be removed.',
                    next_step=f"trainyard stop {name} --wait",
                )
        for job in jobs:
            api.call("sagemaker", "DeleteTrainingJob", TrainingJobName=job["TrainingJobName"])
            say(f'Training job "{job["TrainingJobName"]}" is removed; what it stored on S3 stays.')
