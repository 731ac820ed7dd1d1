"""`trainyard stop` and `trainyard rm`: stop training jobs, and remove ended ones."""

from pathlib import Path

import click

from trainyard._sdk.training.job import TrainingJobHandle
from trainyard._sdk.training.outcomes import summary
from trainyard._sdk.training.stream import FINAL
from trainyard.cli.jobs.lookup import find_job, open_api
from trainyard.cli.terminal.console import CommandWithExamples, home_option, say
from trainyard.cli.terminal.failure import Failure


@click.command(
    cls=CommandWithExamples,
    examples=("trainyard stop @last", "trainyard stop mnist-1 mnist-2 --wait"),
)
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@click.option("--wait", is_flag=True, help="Wait until the jobs have ended.")
@home_option
def stop(names: tuple[str, ...], wait: bool, folder: Path | None) -> None:
    """Stop training jobs. Their scripts get SIGTERM and, after the grace period, SIGKILL. Saved results are kept."""
    with open_api(folder) as api:
        jobs = [find_job(api, name) for name in names]
        for job in jobs:
            name = job["TrainingJobName"]
            if job["TrainingJobStatus"] in FINAL:
                say(f'Training job "{name}" is already {job["TrainingJobStatus"]}.')
                continue
            TrainingJobHandle(api, name).stop()
            if not wait:
                say(f'Training job "{name}" is stopping.')
        for job in jobs if wait else ():
            found = TrainingJobHandle(api, job["TrainingJobName"])
            say(summary(found.wait_for_end(), found.details()))


@click.command(
    cls=CommandWithExamples,
    examples=("trainyard rm @last", "trainyard rm mnist-1 mnist-2"),
)
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@home_option
def rm(names: tuple[str, ...], folder: Path | None) -> None:
    """Remove ended training jobs with their logs and metrics. Their models and outputs on S3 are kept."""
    with open_api(folder) as api:
        jobs = [find_job(api, name) for name in names]
        for job in jobs:
            if job["TrainingJobStatus"] not in FINAL:
                name = job["TrainingJobName"]
                raise Failure(
                    f'Training job "{name}" is {job["TrainingJobStatus"]}; only ended jobs can be removed.',
                    next_step=f"trainyard stop {name} --wait",
                )
        for job in jobs:
            api.call("sagemaker", "DeleteTrainingJob", TrainingJobName=job["TrainingJobName"])
            say(f'Removed training job "{job["TrainingJobName"]}"; its files on S3 are kept.')
