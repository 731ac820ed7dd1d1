"""What commands share on the terminal: data on stdout, everything else on stderr, and help with its examples first."""

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from trainyard.cli.failure import ExitCode, Failure
from trainyard.connection import Connection, find_home, find_yard
from trainyard.foundation.errors import NotFound
from trainyard.foundation.home import Home

F = TypeVar("F", bound=Callable[..., Any])


class Command(click.Command):
    """A command whose help begins with how it is used."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        options.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*arguments, **options)
        self.examples = examples

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if not examples:
        return
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
    formatter.write_paragraph()


def home_option(function: F) -> F:
    return click.option(
        "--home",
        "folder",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Home folder of the yard. Default: $TRAINYARD_HOME, else ~/.trainyard.",
    )(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)


def chosen_home(folder: Path | None) -> Home:
    return find_home(folder, os.environ)


def running_yard(folder: Path | None) -> Connection:
    """The yard that runs on the chosen home; the usual failure when none does."""
    home = chosen_home(folder)
    home.check()
    try:
        return find_yard(home)
    except NotFound as error:
        raise no_yard(home) from error


def no_yard(home: Home) -> Failure:
    """What every command that talks to a yard says when none runs."""
    return Failure(
        "No yard is running.",
        why=f"Nothing answers for the home folder {home.root}.",
        next_step=command_line("up --detach", home),
        code=ExitCode.NOT_FOUND,
    )


def command_line(command: str, home: Home) -> str:
    """A command to type next, on this home folder."""
    usual = home == find_home(None, os.environ)
    return f"trainyard {command}" + ("" if usual else f" --home {shlex.quote(str(home.root))}")


def say(text: str) -> None:
    """Progress and remarks, which are no data."""
    click.echo(text, err=True)


def print_json(values: Mapping[str, Any]) -> None:
    click.echo(json.dumps(values, indent=2))


def size(count: float) -> str:
    """A number of bytes as people read it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
