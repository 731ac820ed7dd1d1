"""`trainyard drill`: test whether a script resumes from its checkpoints."""

from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.resume_drill.drill import DrillResult, run_drill
from trainyard._sdk.resume_drill.jobs import find_drill_jobs, remove_drill_job
from trainyard._sdk.resume_drill.verdict import GOOD, UNDECIDED
from trainyard._sdk.training.console import terminal_safe
from trainyard.cli.jobs.lookup import find_access, find_job, job_argument, translate_failures
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    json_option,
    say,
    yard_option,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.session import Session


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard drill @last                       exit code 0 only if it resumes",
        "trainyard drill mnist-1 --tolerance 1e-6    allow small differences between the models",
        "trainyard drill mnist-1 --seed 7 --rm       interrupt at another point, and clean up",
        "trainyard drill mnist-1 --clean             remove the jobs of earlier drills",
    ),
)
@job_argument
@click.option("--seed", metavar="N", type=int, default=0, show_default=True, help="Chooses when to interrupt.")
@click.option(
    "--tolerance",
    metavar="X",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Largest allowed difference between the numbers of the two models.",
)
@click.option("--rm", "removes", is_flag=True, help="At the end, remove the jobs of the drill and their files.")
@click.option("--clean", is_flag=True, help="Run no drill; remove the jobs of earlier drills and their files.")
@yard_option
@json_option
def drill(
    job: str, seed: int, tolerance: float, removes: bool, clean: bool, folder: Path | None, as_json: JsonFields | None
) -> int:
    """Run JOB twice more, once with an interruption in the middle, and report whether its script resumes.

    The drill compares the two models byte by byte and, where they differ, tensor by tensor. The metrics or the log show
    whether the script resumed or started over. Both runs are new jobs that store their checkpoints and outputs under
    trainyard-drills/ in your bucket; JOB and its checkpoints stay unchanged. Exit codes: 0 if the script resumes, 1 if
    it does not or if its result differs, 7 if the drill cannot tell.
    """
    access = find_access(folder)
    client = access.client()
    try:
        with translate_failures():
            if clean:
                _clean(client, job)
                return ExitCode.OK
            found = find_job(client, job)
            bucket = Session(api=client, region=access.region).default_bucket()
            result = run_drill(client, found, bucket=bucket, seed=seed, tolerance=tolerance, report=say)
            for drill_job in result.jobs if removes else ():
                remove_drill_job(client, drill_job)
    finally:
        client.close()
    _print_result(result, as_json=as_json)
    return exit_code_of(result)


def exit_code_of(result: DrillResult) -> ExitCode:
    """Return the exit code of a drill."""
    if result.verdict.outcome in GOOD:
        return ExitCode.OK
    return ExitCode.UNDECIDED if result.verdict.outcome in UNDECIDED else ExitCode.FAILED


def drill_shape(result: DrillResult) -> dict[str, Any]:
    """Return a drill as `--json` prints it."""
    verdict = result.verdict
    return {
        "Finding": verdict.outcome,
        "Resumes": verdict.outcome in GOOD,
        "Sentence": verdict.sentence,
        "Evidence": list(verdict.evidence),
        "Jobs": [
            {
                "TrainingJobName": run.name,
                "TrainingJobStatus": run.status,
                "Interruptions": run.interruptions,
                "TrainingTimeInSeconds": run.trained.total_seconds(),
            }
            for run in result.runs
        ],
    }


def _print_result(result: DrillResult, *, as_json: JsonFields | None) -> None:
    if as_json:
        print_json(drill_shape(result), as_json)
        return
    verdict = result.verdict
    click.echo(f"{verdict.outcome}. {terminal_safe(verdict.sentence)}")
    for line in verdict.evidence:
        click.echo(f"  {terminal_safe(line)}")


def _clean(api: Api, job: str) -> None:
    name, count = _drilled_name(api, job), 0
    for drill_job in list(find_drill_jobs(api, name)):
        remove_drill_job(api, drill_job)
        count += 1
    say(f'Removed {count} job{"" if count == 1 else "s"} of drills of "{name}", with their files.')


def _drilled_name(api: Api, job: str) -> str:
    """Return the name of a drilled job, which may have been removed since."""
    try:
        return str(find_job(api, job)["TrainingJobName"])
    except Failure as error:
        if error.code != ExitCode.NOT_FOUND:
            raise
    return job
