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
    result_option,
    say,
    select_home,
    size_text,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, pascal_case_keys, print_json
from trainyard.cli.terminal.tables import Column, print_table
from trainyard.foundation.home import Home

_CODES = {"NotFound": ExitCode.NOT_FOUND, "NotPermitted": ExitCode.AUTH, "LimitExceeded": ExitCode.QUOTA}


def maintain(command: str, home: Home, *arguments: str, invalid: ExitCode = ExitCode.FAILED) -> dict[str, Any]:
    """Run a command of trainyard.server.upkeep.maintenance and return its result. Its errors become failures.

    `invalid` is the exit code for what is invalid, such as an argument that only the server understands.
    """
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
        code = invalid if result["kind"] == "InvalidRequest" else _CODES.get(result["kind"], ExitCode.FAILED)
        raise Failure(result["error"], code=code)
    return result


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard backup /backups/yard-monday        to a new folder",
        "trainyard backup /backups/yard-monday.tar    to one file",
    ),
)
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--with-master-key",
    is_flag=True,
    help="Include the master key. Whoever has the backup can then read encrypted objects.",
)
@home_option
@json_option
def backup(target: Path, with_master_key: bool, folder: Path | None, as_json: JsonFields | None) -> None:
    """Copy all data of the yard to TARGET, which must not exist. The yard can keep running."""
    home = select_home(folder)
    home.check()
    result = maintain("backup", home, str(target.absolute()), *["--with-master-key"] * with_master_key)
    if as_json:
        print_json(pascal_case_keys(result), as_json)
        return
    say(
        f"Copied {result['objects']} objects, {result['records']} records and {result['files']} files, "
        f"{size_text(result['bytes'])}, to {result['target']}"
    )
    if result["lacks_master_key"]:
        say(
            "The master key is not in it. Keep a copy of that file elsewhere: without it, encrypted objects cannot be "
            "read after a restore."
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
@result_option("Home", "Objects", "Records", "Files", "Bytes")
def restore(source: Path, folder: Path | None, as_json: JsonFields | None) -> None:
    """Restore a backup to an empty home folder, after checking that the backup is complete."""
    home = select_home(folder)
    result = maintain("restore", home, str(source.absolute()))
    if as_json:
        counts = {name: result[name] for name in ("objects", "records", "files", "bytes")}
        print_json({"Home": str(home.root)} | pascal_case_keys(counts), as_json)
        return
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
def gc(folder: Path | None, dry_run: bool, as_json: JsonFields | None) -> None:
    """Remove data that no bucket, log stream or user owns any more, and uploaded inputs that no job needs.

    The yard can be running.
    """
    home = select_home(folder)
    home.check()
    result = maintain("gc", home, *(["--dry-run"] if dry_run else []))
    if as_json:
        print_json(pascal_case_keys(result), as_json)
        return
    rows = [(str(row["count"]), size_text(row["bytes"]), row["what"]) for row in result["swept"]]
    print_table((Column("count", "right"), Column("size", "right"), "what"), rows)
    say("Nothing was removed." if dry_run else "Done.")
