"""`trainyard replay`: run one recorded step of a training job again."""

from datetime import UTC, datetime
from pathlib import Path

import click

from trainyard.cli.console import Command, home_option, say
from trainyard.cli.failure import ExitCode, Failure
from trainyard.cli.jobs import calls, exit_code_of, find_job, job_argument
from trainyard.job_names import base_of, create_named
from trainyard.replaying import recorded_steps, replay_request
from trainyard.training_job import TrainingJob


@click.command(
    cls=Command,
    short_help="Run a recorded step of a job again.",
    examples=(
        "trainyard replay @last               which steps were recorded",
        "trainyard replay @last --step 412    with the weights, the batch and the random numbers of then",
    ),
)
@job_argument
@click.option("--step", metavar="N", type=click.IntRange(min=0), help="The step. Default: list those that there are.")
@home_option
def replay(job: str, step: int | None, folder: Path | None) -> int:
    """Run one step of JOB again from what its flight recorder kept when a rule found something.

    A job of its own does that, with the script, the image and the data of JOB; it ends after the step, and its last
    lines say whether the loss is the same as then, bit for bit.
    """
    with calls(folder) as api:
        description = find_job(api, job)
        name, steps = description["TrainingJobName"], recorded_steps(api, description)
        if not steps:
            raise Failure(
                f"{name} recorded no step.",
                why="Steps are recorded when a rule finds something.",
                code=ExitCode.NOT_FOUND,
            )
        if step is None:
            click.echo("\n".join(map(str, steps)))
            return ExitCode.OK
        if step not in steps:
            raise Failure(
                f"{name} recorded no step {step}; it has {', '.join(map(str, steps))}.", code=ExitCode.NOT_FOUND
            )
        engine = TrainingJob(api, name).details()["Engine"]
        request = replay_request(description, step, engine=engine, now=datetime.now(UTC))

        def create(own: str) -> None:
            api.call("sagemaker", "CreateTrainingJob", **request | {"TrainingJobName": own})

        again = TrainingJob(api, create_named(base_of(request["TrainingJobName"]), create))
        say(f"{again.name} runs step {step} of {name} again.")
        again.logs()
        return exit_code_of(again.describe())
