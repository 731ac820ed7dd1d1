"""`trainyard restore`: a home folder from a backup."""

from pathlib import Path

import click

from trainyard.cli.console import Command, chosen_home, command_line, home_option, say, size
from trainyard.cli.maintenance import maintain


@click.command(
    cls=Command,
    short_help="Fill an empty home folder from a backup.",
    examples=(
        "trainyard restore /backups/yard-monday.tar",
        "trainyard restore /backups/yard-monday --home /data/yard",
    ),
)
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@home_option
def restore(source: Path, folder: Path | None) -> None:
    """Fill an empty home folder from a backup, after checking that the backup is whole."""
    home = chosen_home(folder)
    result = maintain("restore", home, str(source.absolute()))
    say(
        f"Restored {result['objects']} objects, {result['records']} records and {result['files']} files, "
        f"{size(result['bytes'])}, to {home.root}"
    )
    say(f"To start it: {command_line('up --detach', home)}")
