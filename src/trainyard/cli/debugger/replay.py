"""`trainyard replay`: replay a recorded step of a training job."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from trainyard._sdk.job_names import base_of, create_named
from trainyard._sdk.training.job import TrainingJobHandle
from trainyard._sdk.training.replay import recorded_steps, replay_request
from trainyard.cli.jobs.lookup import exit_code_of, find_job, job_argument, open_api
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    result_option,
    say,
    yard_option,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard replay @last               list the recorded steps",
        "trainyard replay @last --step 412    replay a step with its weights, batch and random state",
    ),
)
@job_argument
@click.option("--step", metavar="N", type=click.IntRange(min=0), help="The step. Default: list the recorded steps.")
@yard_option
@result_option("TrainingJobName", "TrainingJobStatus", "Step", "Steps")
def replay(job: str, step: int | None, folder: Path | None, as_json: JsonFields | None) -> int:
    """Replay a step of JOB that the flight recorder saved when a rule found an issue.

    This starts a new job with the script, the image and the data of JOB. It ends after the step; its last log lines
    report whether the loss is identical, bit for bit.
    """
    with open_api(folder) as api:
        description = find_job(api, job)
        name, steps = description["TrainingJobName"], recorded_steps(api, description)
        if not steps:
            raise Failure(
                f"{name} recorded no steps.",
                why="Steps are recorded when a rule finds an issue.",
                code=ExitCode.NOT_FOUND,
            )
        if step is None:
            _print_steps(name, steps, as_json)
            return ExitCode.OK
        if step not in steps:
            raise Failure(
                f"{name} did not record step {step}; it has {', '.join(map(str, steps))}.", code=ExitCode.NOT_FOUND
            )
        engine = TrainingJobHandle(api, name).details()["Engine"]
        request = replay_request(description, step, engine=engine, now=datetime.now(UTC))

        def create(own: str) -> None:
            api.call("sagemaker", "CreateTrainingJob", **request | {"TrainingJobName": own})

        again = TrainingJobHandle(api, create_named(base_of(request["TrainingJobName"]), create))
        say(f"{again.name} replays step {step} of {name}.")
        if not as_json:
            again.logs()
            return exit_code_of(again.describe())
        ended = again.wait_for_end()
        values = {"TrainingJobName": again.name, "TrainingJobStatus": ended["TrainingJobStatus"], "Step": step}
        print_json({**values, "Steps": steps}, as_json)
        return exit_code_of(ended)


def _print_steps(name: str, steps: Sequence[int], as_json: JsonFields | None) -> None:
    if as_json:
        values = {"TrainingJobName": name, "TrainingJobStatus": None, "Step": None, "Steps": list(steps)}
        print_json(values, as_json)
    else:
        click.echo("\n".join(map(str, steps)))
