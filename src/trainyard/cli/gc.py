"""`trainyard gc`: clear away what nothing owns."""

from pathlib import Path

import click

from trainyard.cli.console import Command, chosen_home, home_option, json_option, print_json, say, size
from trainyard.cli.maintenance import maintain


@click.command(
    cls=Command, short_help="Remove what nothing owns any more.", examples=("trainyard gc --dry-run", "trainyard gc")
)
@home_option
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would go.")
@json_option
def gc(folder: Path | None, dry_run: bool, as_json: bool) -> None:
    """Remove what no bucket, log stream or user owns any more, and uploaded inputs that no job needs.

    The yard may be running.
    """
    home = chosen_home(folder)
    home.check()
    result = maintain("gc", home, *(["--dry-run"] if dry_run else []))
    if as_json:
        print_json(result)
        return
    for row in result["swept"]:
        click.echo(f"{row['count']:>8}  {size(row['bytes']):>10}  {row['what']}")
    say("Nothing was removed." if dry_run else "Done.")
