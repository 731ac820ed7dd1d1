"""`trainyard upgrade-check`: what happens when this version opens the home folder."""

from pathlib import Path
from typing import Any

import click

from trainyard import __version__
from trainyard.cli.terminal.console import CommandWithExamples, home_option, json_option, say, select_home
from trainyard.cli.terminal.failure import ExitCode
from trainyard.cli.terminal.json_output import JsonFields, pascal_case_keys, print_json
from trainyard.cli.yard.maintenance import maintain


@click.command(
    name="upgrade-check",
    cls=CommandWithExamples,
    examples=("trainyard upgrade-check", "trainyard upgrade-check && trainyard down && trainyard up --detach"),
)
@home_option
@json_option
def upgrade_check(folder: Path | None, as_json: JsonFields | None) -> int:
    """Show whether this version can open the home folder, which migrations would run, and which agents run.

    Run it after an upgrade of the package and before a restart of the yard. It changes nothing and needs no network.
    The exit code is 1 if this version cannot open the home folder.
    """
    home = select_home(folder)
    checks: list[dict[str, Any]] = maintain("upgrade-check", home)["checks"]
    if as_json:
        print_json(pascal_case_keys({"version": __version__, "checks": checks}), as_json)
    else:
        for check in checks:
            mark = click.style("yes", fg="green") if check["ok"] else click.style("no ", fg="red")
            click.echo(f"{mark}  {check['name']:<14}{check['detail']}")
            click.echo(f"     {'':<14}{click.style(check['consequence'], dim=True)}")
    if all(check["ok"] for check in checks):
        return ExitCode.OK
    if not as_json:
        say(f"Trainyard {__version__} cannot open {home.root}.")
    return ExitCode.FAILED
