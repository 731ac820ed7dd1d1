"""`trainyard backup`: all that a yard keeps, in one folder or file."""

from pathlib import Path

import click

from trainyard.cli.console import Command, chosen_home, command_line, home_option, json_option, print_json, say, size
from trainyard.cli.maintenance import maintain


@click.command(
    cls=Command,
    short_help="Copy everything the yard keeps.",
    examples=(
        "trainyard backup /backups/yard-monday        into a new folder",
        "trainyard backup /backups/yard-monday.tar    into one file",
    ),
)
@click.argument("target", type=click.Path(path_type=Path))
@home_option
@json_option
def backup(target: Path, folder: Path | None, as_json: bool) -> None:
    """Copy everything the yard keeps to TARGET, which must not exist; the yard may go on running."""
    home = chosen_home(folder)
    home.check()
    result = maintain("backup", home, str(target.absolute()))
    if as_json:
        print_json(result)
        return
    say(
        f"Kept {result['objects']} objects, {result['records']} records and {result['files']} files, "
        f"{size(result['bytes'])}, in {result['target']}"
    )
    say(f"To bring it back: {command_line(f'restore {target}', home)}")
