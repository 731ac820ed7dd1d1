"""`trainyard connect` and `disconnect`: make all AWS clients of this user use the yard, and undo it byte for byte."""

import difflib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from trainyard._sdk.connection import YardConnection, client_environment
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    command_line,
    environment,
    home_option,
    running_yard,
    say,
    select_home,
)
from trainyard.cli.terminal.failure import Failure
from trainyard.cli.yard.client_files import client_files, default_endpoints, sts_endpoints
from trainyard.cli.yard.file_replacements import FileChange, load_replacements, read_if_present, replace_files
from trainyard.foundation.files import lock_folder

_SECRET = re.compile(r"(aws_secret_access_key|aws_session_token)(\s*=\s*)(\S+)")
# Variables that clients read before any file.
_OVERRIDING_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CA_BUNDLE")
# The limit of one printed diff. The list of endpoints has many thousand lines.
_MAX_DIFF_LINES = 24


@dataclass(frozen=True, slots=True)
class _FileWrite:
    path: Path
    before: str
    after: str


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard connect          show the changes, ask, then write",
        "trainyard connect -y       write without asking",
        "trainyard disconnect       restore the original files",
    ),
)
@home_option
@click.option("-y", "--yes", is_flag=True, help="Write without asking.")
def connect(folder: Path | None, yes: bool) -> None:
    """Write the files that make boto3, the aws CLI and the sagemaker SDK use this yard, in every shell.

    The command replaces the default profile in ~/.aws/config and ~/.aws/credentials, ~/.aws/models/endpoints.json, and
    the config.yaml of the sagemaker SDK. The originals are saved in the home folder of the yard.
    """
    connection = running_yard(folder)
    replacements = load_replacements(connection.home.connection)
    _require_no_changes(replacements.changes(), "connect")
    files = client_files(connection, user_home=Path.home(), environment=environment())
    writes = []
    for file in files:
        own = (replacements.original(file.path) or b"").decode(errors="surrogateescape")
        writes.append(_FileWrite(file.path, _text_of(file.path), file.compose(own)))
    if all(write.before == write.after for write in writes):
        say("Already connected; there is nothing to change.")
        return
    _print_changes(writes)
    _confirm(yes)
    # Every connect of this user writes the same files, whichever yard it connects to.
    with lock_folder(Path.home()):
        _require_unchanged(writes)
        replacements.undo()
        contents = [(write.path, write.after.encode(errors="surrogateescape")) for write in writes]
        try:
            replace_files(connection.home.connection, contents)
        except OSError as error:
            why = f"{error.strerror}. Nothing was changed."
            raise Failure(f"{error.filename} cannot be written.", why=why) from error
    say(f"Connected. `{command_line('disconnect', connection.home)}` restores the original files.")
    for name in _overriding_variables(connection):
        say(f"{name} is set in this shell and overrides these files: unset {name}")


@click.command(
    cls=CommandWithExamples,
    examples=("trainyard disconnect",),
)
@home_option
@click.option(
    "--force", is_flag=True, help="Restore the originals even over later changes, and save a copy of each changed file."
)
def disconnect(folder: Path | None, force: bool) -> None:
    """Restore the files that `trainyard connect` replaced, byte for byte."""
    home = select_home(folder)
    with lock_folder(Path.home()):
        replacements = load_replacements(home.connection)
        if not replacements.files:
            say("Not connected; there is nothing to restore.")
            return
        changes = replacements.changes()
        if not force:
            _require_no_changes(changes, "disconnect")
        for change in changes:
            say(f"Saved the changed {change.path} as {_save_copy(change)}")
        replacements.undo()
        for file in replacements.files:
            say(f"{'Removed' if file.mode is None else 'Restored'} {file.path}")


def _require_unchanged(writes: Sequence[_FileWrite]) -> None:
    for write in writes:
        if _text_of(write.path) != write.before:
            raise Failure(
                f"Cannot connect: {write.path} has changed since the changes were shown.",
                why="Another `trainyard connect` or another program has written it. Nothing was changed.",
                next_step="trainyard connect",
            )


def _text_of(path: Path) -> str:
    return (read_if_present(path) or b"").decode(errors="surrogateescape")


def _overriding_variables(connection: YardConnection) -> list[str]:
    """Return the variables of this shell that override the files and do not point to the yard."""
    current = environment()
    ours = client_environment(connection, current=current)
    differing = [
        name for name in _OVERRIDING_VARIABLES if current.get(name, ours.variables[name]) != ours.variables[name]
    ]
    return sorted(differing + [name for name in ours.unset if name in current])


def _require_no_changes(changes: Sequence[FileChange], command: str) -> None:
    if not changes:
        return
    for change in changes:
        _print_diff(change.path, change.written.decode(errors="replace"), after=change.found.decode(errors="replace"))
    names = ", ".join(str(change.path) for change in changes)
    raise Failure(
        f"Cannot {command}: {names} has changed since `trainyard connect` wrote it.",
        why="Restoring the originals would lose the changes above.",
        next_step="undo the changes, or trainyard disconnect --force, which saves a copy of them",
    )


def _print_changes(writes: Sequence[_FileWrite]) -> None:
    for write in writes:
        if write.path.name == "endpoints.json" and not write.before:
            name = f"{write.path}, a copy of botocore's list with these changes"
            _print_diff(Path(name), sts_endpoints(default_endpoints()), after=sts_endpoints(write.after))
        else:
            _print_diff(write.path, write.before, after=write.after)


def _print_diff(path: Path, before: str, *, after: str) -> None:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), lineterm="", n=2))
    for line in lines[:_MAX_DIFF_LINES]:
        color = {"+": "green", "-": "red"}.get(line[:1])
        printable = line.encode(errors="surrogateescape").decode(errors="replace")
        say(click.style(_SECRET.sub(r"\1\2****", printable), fg=color))
    if len(lines) > _MAX_DIFF_LINES:
        say(f"… and {len(lines) - _MAX_DIFF_LINES} more lines")


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure("Not connected.", why="There is no terminal for the question.", next_step="trainyard connect -y")
    click.confirm("Write these files?", abort=True, err=True)


def _save_copy(change: FileChange) -> Path:
    copy = change.path.with_name(change.path.name + ".changed")
    number = 1
    while copy.exists():
        number += 1
        copy = change.path.with_name(f"{change.path.name}.changed{number}")
    copy.touch(mode=0o600)
    copy.write_bytes(change.found)
    return copy
