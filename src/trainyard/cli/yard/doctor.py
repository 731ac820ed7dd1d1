"""`trainyard doctor`: check the capabilities of this machine and the integrity of the home folder."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from trainyard.cli.terminal.console import CommandWithExamples, home_option, json_option, print_json, select_home
from trainyard.cli.terminal.failure import ExitCode
from trainyard.cli.yard.maintenance import maintain
from trainyard.engines.probe import probe_machine
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.home import Home


@click.command(
    cls=CommandWithExamples,
    examples=("trainyard doctor", "trainyard doctor --json", "trainyard doctor --thorough"),
)
@home_option
@click.option("--thorough", is_flag=True, help="Also read every object and verify its checksum.")
@json_option
def doctor(folder: Path | None, thorough: bool, as_json: bool) -> int:
    """Check what this machine supports and whether the home folder is intact. Each line has the consequence.

    The exit code is 1 if the home folder is damaged. A capability that the machine lacks is not an error.
    """
    home = select_home(folder)
    machine = [dataclasses.asdict(capability) for capability in probe_machine(home.root)]
    checks = _check_home(home, thorough=thorough)
    if as_json:
        print_json({"machine": machine, "home": checks})
    else:
        _print("This machine", machine)
        _print(f"The home folder {home.root}", checks)
    return ExitCode.OK if all(check["ok"] for check in checks) else ExitCode.FAILED


def _check_home(home: Home, *, thorough: bool) -> Sequence[dict[str, Any]]:
    try:
        if home.check() is None:
            detail, consequence = "does not exist yet", "`trainyard up` creates it."
            return [{"name": "home folder", "ok": True, "detail": detail, "consequence": consequence}]
        checks: list[dict[str, Any]] = maintain("check", home, *(["--thorough"] if thorough else []))["checks"]
    except TrainyardError as error:
        return [{"name": "home folder", "ok": False, "detail": error.message, "consequence": "The yard cannot start."}]
    return checks


def _print(title: str, rows: Sequence[dict[str, Any]]) -> None:
    click.secho(title, bold=True)
    for row in rows:
        mark = click.style("yes", fg="green") if row["ok"] else click.style("no ", fg="yellow")
        click.echo(f"  {mark}  {row['name']:<20}{row['detail']}")
        click.echo(f"       {'':<20}{click.style(row['consequence'], dim=True)}")
