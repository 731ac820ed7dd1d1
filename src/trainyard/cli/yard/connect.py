"""`trainyard connect` and `disconnect`: make all AWS clients of this user use the yard, and undo it byte for byte."""

import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from trainyard._sdk.connection import profile_target
from trainyard._sdk.profiles import profiles_of
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    ask,
    command_line,
    environment,
    home_option,
    profile_option,
    result_option,
    say,
    select_home,
    select_target,
)
from trainyard.cli.terminal.failure import Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.yard.client_files import client_files, default_endpoints, sts_endpoints
from trainyard.cli.yard.file_replacements import (
    FileChange,
    Replacements,
    load_replacements,
    read_if_present,
    replace_files,
)
from trainyard.cli.yard.overrides import Override, find_overrides
from trainyard.foundation.files import lock_folder

_SECRET = re.compile(r"(aws_secret_access_key|aws_session_token)(\s*=\s*)(\S+)")
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
@profile_option
@click.option("-y", "--yes", is_flag=True, help="Write without asking.")
@result_option("Written", "Overrides")
def connect(folder: Path | None, yes: bool, as_json: JsonFields | None) -> None:
    """Write the files that make boto3, the aws CLI and the sagemaker SDK use this yard, in every shell.

    The command replaces the default profile in ~/.aws/config and ~/.aws/credentials, ~/.aws/models/endpoints.json, and
    the config.yaml of the sagemaker SDK. The originals are saved in the home folder of the yard or, after `trainyard
    login`, beside the profiles.
    """
    target = select_target(folder)
    if not target.https:
        raise Failure(
            "Cannot connect to a yard by its http address.",
            why="The sagemaker SDK calls one service over https, whatever is configured.",
            next_step="trainyard login URL, with the https address of the yard",
        )
    store, others = _stores(folder)
    if others:
        raise Failure(
            "AWS clients are connected to another yard already.",
            why=f"The files that it replaced are in {others[0].folder}.",
            next_step="trainyard disconnect",
        )
    replacements = load_replacements(store)
    _require_no_changes(replacements.changes(), "connect")
    files = client_files(target, user_home=Path.home(), environment=environment())
    writes = []
    for file in files:
        own = (replacements.original(file.path) or b"").decode(errors="surrogateescape")
        writes.append(_FileWrite(file.path, _text_of(file.path), file.compose(own)))
    if all(write.before == write.after for write in writes):
        say("Already connected; there is nothing to change.")
        _report_connection((), find_overrides(target, environment(), bundles=certificates_folder(folder)), as_json)
        return
    _print_changes(writes)
    _confirm(yes)
    # Every connect of this user writes the same files, whichever yard it connects to.
    with lock_folder(Path.home()):
        _require_unchanged(writes)
        replacements.undo()
        contents = [(write.path, write.after.encode(errors="surrogateescape")) for write in writes]
        try:
            replace_files(store, contents)
        except OSError as error:
            why = f"{error.strerror}. Nothing was changed."
            raise Failure(f"{error.filename} cannot be written.", why=why) from error
    say(f"Connected. `{command_line('disconnect', select_home(folder))}` restores the original files.")
    overrides = find_overrides(target, environment(), bundles=certificates_folder(folder))
    _report_connection(writes, overrides, as_json)


@click.command(
    cls=CommandWithExamples,
    examples=("trainyard disconnect",),
)
@home_option
@profile_option
@click.option(
    "--force", is_flag=True, help="Restore the originals even over later changes, and save a copy of each changed file."
)
@result_option("Restored")
def disconnect(folder: Path | None, force: bool, as_json: JsonFields | None) -> None:
    """Restore the files that `trainyard connect` replaced, byte for byte."""
    with lock_folder(Path.home()):
        store, others = _stores(folder)
        # Only one of them has replaced files.
        replacements = others[0] if others else load_replacements(store)
        if replacements.files:
            _restore(replacements, force=force)
        else:
            say("Not connected; there is nothing to restore.")
    if as_json:
        print_json({"Restored": [str(file.path) for file in replacements.files]}, as_json)


def _restore(replacements: Replacements, *, force: bool) -> None:
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


def _stores(folder: Path | None) -> tuple[Path, list[Replacements]]:
    """Return the folder for the originals of the selected yard, and what was replaced for another one.

    A yard on this machine has the folder in its home; all profiles share one.
    """
    local, remote = select_home(folder).connection, profiles_of(environment()).connection
    ours, other = (local, remote) if folder or profile_target(environment()) is None else (remote, local)
    return ours, [found for found in (load_replacements(other),) if found.files]


def certificates_folder(folder: Path | None) -> Path:
    """Return the folder for bundles of certificates: of the yard on this machine, or of the profiles."""
    return _stores(folder)[0].parent / "certificates"


def _report_connection(writes: Sequence[_FileWrite], overrides: Iterable[Override], as_json: JsonFields | None) -> None:
    found = list(overrides)
    for override in found:
        say(f"{override.name} is set in this shell and overrides these files. {override.consequence}")
        say(f"  next: {override.remedy}")
    if as_json:
        written = [str(write.path) for write in writes]
        print_json({"Written": written, "Overrides": [override.name for override in found]}, as_json)


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
    ask("Write these files?")


def _save_copy(change: FileChange) -> Path:
    copy = change.path.with_name(change.path.name + ".changed")
    number = 1
    while copy.exists():
        number += 1
        copy = change.path.with_name(f"{change.path.name}.changed{number}")
    copy.touch(mode=0o600)
    copy.write_bytes(change.found)
    return copy
