"""`trainyard tune adopt`: import ended training jobs as a tuning job."""

from pathlib import Path

import click

from trainyard._sdk.tuning.import_jobs import import_jobs
from trainyard.cli.completion.values import complete_jobs
from trainyard.cli.jobs.lookup import open_api
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    result_option,
    say,
    yard_option,
)
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.tuning.arguments import ranges_of


@click.command(
    cls=CommandWithExamples,
    short_help="Import ended training jobs as a study.",
    examples=(
        "trainyard tune adopt mnist-by-hand --job mnist-1 --job mnist-2 \\",
        "    --range lr=log:1e-5..1e-1 --objective val_loss --minimize",
        "trainyard tune adopt mnist-by-hand --prefix mnist- --range lr=log:1e-5..1e-1 --objective val_loss --minimize",
        "trainyard tune train.py --warm-start mnist-by-hand …",
    ),
)
@click.argument("name")
@click.option(
    "--job",
    "jobs",
    metavar="JOB",
    multiple=True,
    shell_complete=complete_jobs,
    help="A training job. Can be given several times.",
)
@click.option("--prefix", metavar="TEXT", help="Instead of --job: all usable training jobs with this name prefix.")
@click.option("--range", "ranges", metavar="NAME=LOW..HIGH", multiple=True, help="A number that differs between them.")
@click.option(
    "--choice",
    "choices",
    metavar="NAME=A,B,...",
    multiple=True,
    help="Another hyperparameter that differs between them.",
)
@click.option("--objective", metavar="METRIC", required=True, help="The metric to compare them by.")
@click.option("--maximize/--minimize", required=True, default=None, help="Whether a higher or a lower value is better.")
@yard_option
@result_option("HyperParameterTuningJobName")
def adopt(
    name: str,
    jobs: tuple[str, ...],
    prefix: str | None,
    ranges: tuple[str, ...],
    choices: tuple[str, ...],
    objective: str,
    maximize: bool,
    folder: Path | None,
    as_json: JsonFields | None,
) -> None:
    """Import ended training jobs as the study NAME, so that other studies can learn from it.

    The training jobs stay unchanged.
    """
    if bool(jobs) == bool(prefix):
        raise click.UsageError("Select the training jobs with either --job or --prefix.")
    kind = "Maximize" if maximize else "Minimize"
    with open_api(folder) as api:
        import_jobs(
            api,
            prefix or list(jobs),
            name=name,
            objective={"MetricName": objective, "Type": kind},
            ranges=ranges_of(ranges, choices),
        )
    if as_json:
        print_json({"HyperParameterTuningJobName": name}, as_json)
        return
    say(f'Created tuning job "{name}"; `trainyard tune show {name}` shows it.')
