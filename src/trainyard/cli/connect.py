"""`trainyard connect` and `disconnect`: let every AWS client of this user use the yard, and undo that byte for byte."""

import difflib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from trainyard.cli.client_files import client_files, sts_endpoints, usual_endpoints
from trainyard.cli.console import Command, chosen_home, command_line, home_option, running_yard, say
from trainyard.cli.failure import Failure
from trainyard.cli.replacement import Change, load_replacements, read_if_there, replace_files
from trainyard.connection import Connection, client_environment
from trainyard.foundation.files import alone_in

_SECRET = re.compile(r"(aws_secret_access_key|aws_session_token)(\s*=\s*)(\S+)")
_HEEDED = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CA_BUNDLE")
_MOST_LINES = 24  # of one diff; the list of endpoints has many thousand


@dataclass(frozen=True, slots=True)
class _Write:
    path: Path
    before: str
    after: str


@click.command(
    cls=Command,
    short_help="Write the files that make AWS clients and the sagemaker SDK use the yard.",
    examples=(
        "trainyard connect          show what will be written, ask, write",
        "trainyard connect -y       do not ask",
        "trainyard disconnect       put everything back",
    ),
)
@home_option
@click.option("-y", "--yes", is_flag=True, help="Write without asking.")
def connect(folder: Path | None, yes: bool) -> None:
    """Write the files that make boto3, the aws CLI and the sagemaker SDK use this yard, in every shell.

    The default profile of ~/.aws/config and ~/.aws/credentials, ~/.aws/models/endpoints.json and the sagemaker SDK's
    config.yaml are replaced; the originals are kept in the home folder of the yard.
    """
    connection = running_yard(folder)
    kept = load_replacements(connection.home.connection)
    _refuse_changes(kept.changes(), "connect")
    files = client_files(connection, user_home=Path.home(), environment=os.environ)
    writes = []
    for file in files:
        own = (kept.original(file.path) or b"").decode(errors="surrogateescape")
        writes.append(_Write(file.path, _text_of(file.path), file.compose(own)))
    if all(write.before == write.after for write in writes):
        say("Already connected; nothing to write.")
        return
    _show(writes)
    _ask(yes)
    with alone_in(Path.home()):  # every connect of this user, to whatever yard, writes the same files
        _refuse_newer(writes)
        kept.undo()
        contents = [(write.path, write.after.encode(errors="surrogateescape")) for write in writes]
        try:
            replace_files(connection.home.connection, contents)
        except OSError as error:
            why = f"{error.strerror}. Nothing was changed."
            raise Failure(f"{error.filename} cannot be written.", why=why) from error
    say(f"Connected. `{command_line('disconnect', connection.home)}` puts everything back.")
    for name in _in_the_way(connection):
        say(f"{name} is set in this shell and comes before these files: unset {name}")


@click.command(
    cls=Command, short_help="Put back what `connect` replaced, byte for byte.", examples=("trainyard disconnect",)
)
@home_option
@click.option(
    "--force", is_flag=True, help="Put the originals back even over changes; a copy of each changed file is kept."
)
def disconnect(folder: Path | None, force: bool) -> None:
    """Put back, byte for byte, what `trainyard connect` replaced."""
    home = chosen_home(folder)
    with alone_in(Path.home()):
        kept = load_replacements(home.connection)
        if not kept.files:
            say("Not connected; nothing to put back.")
            return
        changes = kept.changes()
        if not force:
            _refuse_changes(changes, "disconnect")
        for change in changes:
            say(f"The changed {change.path} is kept as {_keep_copy(change)}")
        kept.undo()
        for file in kept.files:
            say(f"{'removed' if file.mode is None else 'restored'} {file.path}")


def _refuse_newer(writes: Sequence[_Write]) -> None:
    for write in writes:
        if _text_of(write.path) != write.before:
            raise Failure(
                f"Cannot connect: {write.path} changed after it was shown.",
                why="Another `trainyard connect`, or someone else, wrote it meanwhile. Nothing was changed.",
                next_step="trainyard connect",
            )


def _text_of(path: Path) -> str:
    return (read_if_there(path) or b"").decode(errors="surrogateescape")


def _in_the_way(connection: Connection) -> list[str]:
    """Variables of this shell that clients heed before any file, and that name something else than the yard."""
    ours = client_environment(connection)
    differing = [name for name in _HEEDED if os.environ.get(name, ours.variables[name]) != ours.variables[name]]
    return sorted(differing + [name for name in ours.unset if name in os.environ])


def _refuse_changes(changes: Sequence[Change], command: str) -> None:
    if not changes:
        return
    for change in changes:
        _print_diff(change.path, change.written.decode(errors="replace"), after=change.found.decode(errors="replace"))
    names = ", ".join(str(change.path) for change in changes)
    raise Failure(
        f"Cannot {command}: {names} changed since `trainyard connect` wrote it.",
        why="Putting the originals back would lose the changes above.",
        next_step="undo the changes, or trainyard disconnect --force, which keeps a copy of them",
    )


def _show(writes: Sequence[_Write]) -> None:
    for write in writes:
        if write.path.name == "endpoints.json" and not write.before:
            name = f"{write.path}, a copy of botocore's own but for this"
            _print_diff(Path(name), sts_endpoints(usual_endpoints()), after=sts_endpoints(write.after))
        else:
            _print_diff(write.path, write.before, after=write.after)


def _print_diff(path: Path, before: str, *, after: str) -> None:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), lineterm="", n=2))
    for line in lines[:_MOST_LINES]:
        color = {"+": "green", "-": "red"}.get(line[:1])
        printable = line.encode(errors="surrogateescape").decode(errors="replace")
        say(click.style(_SECRET.sub(r"\1\2****", printable), fg=color))
    if len(lines) > _MOST_LINES:
        say(f"… and {len(lines) - _MOST_LINES} more lines")


def _ask(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure("Not connected.", why="There is no terminal to ask on.", next_step="trainyard connect -y")
    click.confirm("Write these files?", abort=True, err=True)


def _keep_copy(change: Change) -> Path:
    copy = change.path.with_name(change.path.name + ".changed")
    number = 1
    while copy.exists():
        number += 1
        copy = change.path.with_name(f"{change.path.name}.changed{number}")
    copy.touch(mode=0o600)
    copy.write_bytes(change.found)
    return copy
