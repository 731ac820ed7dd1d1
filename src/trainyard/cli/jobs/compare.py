"""`trainyard compare`: in what training jobs differ."""

from pathlib import Path

import click

from trainyard._sdk.training.comparison import LOCATION, JobFacts, compare_facts, diff_code, facts_of
from trainyard.cli.completion.values import complete_jobs
from trainyard.cli.jobs.lookup import find_job, open_api
from trainyard.cli.terminal.console import CommandWithExamples, json_option, say, yard_option
from trainyard.cli.terminal.drawing import inert
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.tables import print_table

_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard compare mnist-1 mnist-2",
        "trainyard compare mnist-1 mnist-2 mnist-3 --all",
        "trainyard compare mnist-1 @last --diff           the lines of the code that differ",
    ),
)
@click.argument("names", metavar="JOB JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@click.option("-a", "--all", "shows_all", is_flag=True, help="Show what is the same, too.")
@click.option("--diff", "shows_diff", is_flag=True, help="Show the code of the first job against that of the others.")
@yard_option
@json_option
def compare(
    names: tuple[str, ...], shows_all: bool, shows_diff: bool, folder: Path | None, as_json: JsonFields | None
) -> None:
    """Show how jobs differ: metrics, hyperparameters, code, packages, data, environment and instances.

    Files of code and inputs are compared by their content; inputs on S3 as they are now.
    """
    if len(names) < 2:
        raise click.UsageError("Give at least two jobs.")
    with open_api(folder) as api:
        jobs = [facts_of(api, find_job(api, name)) for name in names]
    facts = compare_facts(jobs)
    shown = facts if shows_all else [each for each in facts if not each.is_same and each.kind != LOCATION]
    if as_json:
        differences = [{"Kind": each.kind, "Name": each.name, "Values": list(each.values)} for each in shown]
        print_json({"Jobs": [job.name for job in jobs], "Facts": differences}, as_json, items="Facts")
        return
    if shown:
        rows = [[each.kind, each.name, *(value or "-" for value in each.values)] for each in shown]
        print_table(["", "", *(job.name for job in jobs)], rows)
    else:
        say("The jobs do not differ; --all shows what was compared.")
    for other in jobs[1:] if shows_diff else ():
        _print_diff(jobs[0], other)


def _print_diff(first: JobFacts, second: JobFacts) -> None:
    for line in diff_code(first, second):
        click.secho(inert(line.expandtabs()), fg=_DIFF_COLOURS.get(line[:1]))
