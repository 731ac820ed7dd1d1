"""Input and output of commands: options they share, data on stdout, messages on stderr, examples in the help."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from trainyard._sdk.connection import YardConnection, find_home, find_yard
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.foundation.errors import NotFound
from trainyard.foundation.home import Home

F = TypeVar("F", bound=Callable[..., Any])


class CommandWithExamples(click.Command):
    """A command whose help starts with examples."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        options.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*arguments, **options)
        self.examples = examples

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write the examples of a command as the first section of its help."""
    if not examples:
        return
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
    formatter.write_paragraph()


def home_option(function: F) -> F:
    """Add the option --home to a command."""
    return click.option(
        "--home",
        "folder",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Home folder of the yard. Default: $TRAINYARD_HOME, else ~/.trainyard.",
    )(function)


def json_option(function: F) -> F:
    """Add the option --json to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)


def environment() -> Mapping[str, str]:
    """Return the environment of the running command, which `main` has passed in."""
    variables: Mapping[str, str] = click.get_current_context().find_root().obj
    return variables


def select_home(folder: Path | None) -> Home:
    """Return the home folder of --home or of the environment."""
    return find_home(folder, environment())


def running_yard(folder: Path | None) -> YardConnection:
    """Return the yard that runs on the selected home folder. Raises the common Failure if none does."""
    home = select_home(folder)
    home.check()
    try:
        return find_yard(home)
    except NotFound as error:
        raise no_yard(home) from error


def no_yard(home: Home) -> Failure:
    """Return the failure of every command that needs a yard when none is running."""
    return Failure(
        "No yard is running.",
        why=f"The home folder {home.root} has no running yard.",
        next_step=command_line("up --detach", home),
        code=ExitCode.NOT_FOUND,
    )


def command_line(command: str, home: Home) -> str:
    """Return the command line of a command on a home folder, to show to the user."""
    is_default = home == find_home(None, environment())
    return f"trainyard {command}" + ("" if is_default else f" --home {shlex.quote(str(home.root))}")


def say(text: str) -> None:
    """Print a message to stderr, which is for everything but data."""
    click.echo(text, err=True)


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    click.echo(json.dumps(values, indent=2))


def size_text(count: float) -> str:
    """Return a number of bytes as text, such as `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class DefaultCommandGroup(click.Group):
    """A group with a default command: `trainyard rules JOB` means `trainyard rules show JOB`."""

    def __init__(self, *arguments: Any, default: str, examples: tuple[str, ...] = (), **options: Any) -> None:
        options.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*arguments, **options)
        self._default, self.examples = default, examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ("-h", "--help")
        if not is_help and (not args or args[0] not in self.commands):
            args = [self._default, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)
