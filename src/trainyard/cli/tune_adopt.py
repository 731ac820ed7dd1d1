"""`trainyard tune adopt`: make a study of training jobs that have ended."""

from pathlib import Path

import click

from trainyard.adopting import adopt as adopt_jobs
from trainyard.cli.console import Command, home_option, say
from trainyard.cli.jobs import calls
from trainyard.cli.tune_arguments import ranges_of


@click.command(
    cls=Command,
    short_help="Make a study of training jobs that have ended.",
    examples=(
        "trainyard tune adopt mnist-by-hand --job mnist-1 --job mnist-2 \\",
        "    --range lr=log:1e-5..1e-1 --objective val_loss --minimize",
        "trainyard tune adopt mnist-by-hand --prefix mnist- --range lr=log:1e-5..1e-1 --objective val_loss --minimize",
        "trainyard tune train.py --warm-start mnist-by-hand …",
    ),
)
@click.argument("name")
@click.option("--job", "jobs", metavar="JOB", multiple=True, help="A training job. May be given several times.")
@click.option("--prefix", metavar="TEXT", help="Instead: all training jobs whose names begin so and that can be used.")
@click.option("--range", "ranges", metavar="NAME=LOW..HIGH", multiple=True, help="A number that differs among them.")
@click.option(
    "--choice", "choices", metavar="NAME=A,B,...", multiple=True, help="Another hyperparameter that differs among them."
)
@click.option("--objective", metavar="METRIC", required=True, help="The metric that says how good each is.")
@click.option("--maximize/--minimize", required=True, default=None, help="Whether more of it is better, or less.")
@home_option
def adopt(
    name: str,
    jobs: tuple[str, ...],
    prefix: str | None,
    ranges: tuple[str, ...],
    choices: tuple[str, ...],
    objective: str,
    maximize: bool,
    folder: Path | None,
) -> None:
    """Make a study called NAME of training jobs that have ended, for others to learn from. They stay as they are."""
    if bool(jobs) == bool(prefix):
        raise click.UsageError("Which training jobs? Name them with --job, or give their --prefix.")
    kind = "Maximize" if maximize else "Minimize"
    with calls(folder) as api:
        adopt_jobs(
            api,
            prefix or list(jobs),
            name=name,
            objective={"MetricName": objective, "Type": kind},
            ranges=ranges_of(ranges, choices),
        )
    say(f'Tuning job "{name}" is made of them; `trainyard tune show {name}` shows it.')
