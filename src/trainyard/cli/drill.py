"""`trainyard drill`: find out whether a script really resumes."""

from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command, home_option, json_option, print_json, say
from trainyard.cli.failure import ExitCode, Failure
from trainyard.cli.jobs import failures, find_access, find_job, job_argument
from trainyard.connection import Api
from trainyard.drilling.drill import Drilled
from trainyard.drilling.drill import drill as drilled
from trainyard.drilling.leftovers import drill_jobs, remove
from trainyard.drilling.verdict import GOOD, UNDECIDED
from trainyard.session import Session
from trainyard.showing import inert


@click.command(
    cls=Command,
    short_help="Find out whether a script really resumes.",
    examples=(
        "trainyard drill @last                       exit code 0 only when it resumes",
        "trainyard drill mnist-1 --tolerance 1e-6    … and comes that close",
        "trainyard drill mnist-1 --seed 7 --rm       interrupted at another moment; leaves nothing behind",
        "trainyard drill mnist-1 --clean             remove what earlier drills of it left",
    ),
)
@job_argument
@click.option("--seed", metavar="N", type=int, default=0, show_default=True, help="Decides when it is interrupted.")
@click.option(
    "--tolerance",
    metavar="X",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="How far the numbers of the two models may be apart.",
)
@click.option("--rm", "removes", is_flag=True, help="Remove the drill's jobs and what they stored at the end.")
@click.option("--clean", is_flag=True, help="Run no drill; remove what earlier ones of this job left.")
@home_option
@json_option
def drill(job: str, seed: int, tolerance: float, removes: bool, clean: bool, folder: Path | None, as_json: bool) -> int:
    """Run the definition of JOB twice, once with an interruption in its midst, and say whether its script resumes.

    The two models are compared byte for byte and, where they differ, tensor by tensor; the metrics or the lines tell
    whether the work went on or started over. The runs are jobs of their own, with checkpoints and outputs of their own
    under trainyard-drills/ in your bucket; the job and its checkpoints are left alone. Exit codes: 0 when it resumes,
    1 when it does not or comes to another result, 7 when that could not be found out.
    """
    access = find_access(folder)
    client = access.client()
    try:
        with failures():
            if clean:
                _clean(client, job)
                return ExitCode.OK
            found = find_job(client, job)
            bucket = Session(api=client, region=access.region).default_bucket()
            done = drilled(client, found, bucket=bucket, seed=seed, tolerance=tolerance, tell=say)
            for places in done.places if removes else ():
                remove(client, places)
    finally:
        client.close()
    _show(done, as_json=as_json)
    return exit_code_of(done)


def exit_code_of(done: Drilled) -> ExitCode:
    if done.verdict.finding in GOOD:
        return ExitCode.OK
    return ExitCode.UNDECIDED if done.verdict.finding in UNDECIDED else ExitCode.FAILED


def told(done: Drilled) -> dict[str, Any]:
    """A drill as JSON has it."""
    verdict = done.verdict
    return {
        "Finding": verdict.finding,
        "Resumes": verdict.finding in GOOD,
        "Sentence": verdict.sentence,
        "Evidence": list(verdict.evidence),
        "Jobs": [
            {
                "TrainingJobName": run.name,
                "TrainingJobStatus": run.status,
                "Interruptions": run.interruptions,
                "TrainingTimeInSeconds": run.trained.total_seconds(),
            }
            for run in done.runs
        ],
    }


def _show(done: Drilled, *, as_json: bool) -> None:
    if as_json:
        print_json(told(done))
        return
    verdict = done.verdict
    click.echo(f"{verdict.finding}. {inert(verdict.sentence)}")
    for line in verdict.evidence:
        click.echo(f"  {inert(line)}")


def _clean(api: Api, job: str) -> None:
    name, count = _drilled_name(api, job), 0
    for places in list(drill_jobs(api, name)):
        remove(api, places)
        count += 1
    say(f'{count} job{"" if count == 1 else "s"} of drills of "{name}" removed, with what they stored.')


def _drilled_name(api: Api, job: str) -> str:
    """The name of a job that may have been removed since it was drilled."""
    try:
        return str(find_job(api, job)["TrainingJobName"])
    except Failure as error:
        if error.code != ExitCode.NOT_FOUND:
            raise
    return job
