"""`trainyard backup`, `restore` and `gc`: maintenance of a home folder, in a process of the server.

The process prints one JSON object to stdout: its result, or an error and its kind.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from trainyard.cli.terminal.console import (
    CommandWithExamples,
    command_line,
    home_option,
    json_option,
    print_json,
    say,
    select_home,
    size_text,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.foundation.home import Home

_CODES = {"NotFound": ExitCode.NOT_FOUND, "NotPermitted": ExitCode.AUTH, "LimitExceeded": ExitCode.QUOTA}


def maintain(command: str, home: Home, *arguments: str) -> dict[str, Any]:
    """Run a command of trainyard.server.upkeep.maintenance and return its result. Its errors become failures."""
    program = [
        sys.executable,
        "-m",
        "trainyard.server.upkeep.maintenance",
        command,
        "--home",
        str(home.root),
        *arguments,
    ]
    ended = subprocess.run(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    try:
        result: dict[str, Any] = json.loads(ended.stdout)
    except ValueError as error:
        raise Failure(
            f"`{command}` failed.", why=f"Its process exited with {ended.returncode} and printed no result."
        ) from error
    if "error" in result:
        raise Failure(result["error"], code=_CODES.get(result["kind"], ExitCode.FAILED))
    return result


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard backup /backups/yard-monday        to a new folder",
        "trainyard backup /backups/yard-monday.tar    to one file",
    ),
)
@click.argument("target", type=click.Path(path_type=Path))
@home_option
@json_option
def backup(target: Path, folder: Path | None, as_json: bool) -> None:
    """Copy all data of the yard to TARGET, which must not exist. The yard can keep running."""
    home = select_home(folder)
    home.check()
    result = maintain("backup", home, str(target.absolute()))
    if as_json:
        print_json(result)
        return
    say(
        f"Copied {result['objects']} objects, {result['records']} records and {result['files']} files, "
        f"{size_text(result['bytes'])}, to {result['target']}"
    )
    say(f"To restore it: {command_line(f'restore {target}', home)}")


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard restore /backups/yard-monday.tar",
        "trainyard restore /backups/yard-monday --home /data/yard",
    ),
)
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@home_option
def restore(source: Path, folder: Path | None) -> None:
    """Restore a backup to an empty home folder, after checking that the backup is complete."""
    home = select_home(folder)
    result = maintain("restore", home, str(source.absolute()))
    say(
        f"Restored {result['objects']} objects, {result['records']} records and {result['files']} files, "
        f"{size_text(result['bytes'])}, to {home.root}"
    )
    say(f"To start it: {command_line('up --detach', home)}")


@click.command(
    cls=CommandWithExamples,
    examples=("trainyard gc --dry-run", "trainyard gc"),
)
@home_option
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be removed.")
@json_option
def gc(folder: Path | None, dry_run: bool, as_json: bool) -> None:
    """Remove data that no bucket, log stream or user owns any more, and uploaded inputs that no job needs.

    The yard can be running.
    """
    home = select_home(folder)
    home.check()
    result = maintain("gc", home, *(["--dry-run"] if dry_run else []))
    if as_json:
        print_json(result)
        return
    for row in result["swept"]:
        click.echo(f"{row['count']:>8}  {size_text(row['bytes']):>10}  {row['what']}")
    say("Nothing was removed." if dry_run else "Done.")
