"""Input and output of commands: options they share, data on stdout, messages on stderr, examples in the help."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from trainyard._sdk.connection import ClientTarget, YardConnection, find_home, find_yard, profile_target
from trainyard._sdk.profiles import LOCAL, PROFILE_VARIABLE, profiles_of
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFieldsParameter
from trainyard.foundation.errors import NotFound
from trainyard.foundation.home import Home

F = TypeVar("F", bound=Callable[..., Any])


def kebab_case(word: str) -> str:
    """Return an option or command as it is spelled here: `input_path`, as ssm spells it, is `input-path`."""
    return word.replace("_", "-")


_ENDPOINT = "trainyard.endpoint"
# Longer than any first sentence.
_MAX_SUMMARY = 500

# Of every command and group. Commands inherit the function from their group, which tests may leave out.
CONTEXT_SETTINGS: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "token_normalize_func": kebab_case}


class CommandWithExamples(click.Command):
    """A command whose help starts with examples. Options can be written with underscores instead of dashes."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        options.setdefault("context_settings", dict(CONTEXT_SETTINGS))
        super().__init__(*arguments, **options)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.attach_json_fields(args))

    def attach_json_fields(self, args: Sequence[str]) -> list[str]:
        """Return the arguments as click can parse them: with the fields of --json joined to it, if there are any."""
        takes_arguments = any(isinstance(parameter, click.Argument) for parameter in self.params)
        types = (parameter.type for parameter in self.params)
        json_fields = next((each for each in types if isinstance(each, JsonFieldsParameter)), None)
        return list(_attach_json_fields(args, json_fields, takes_arguments=takes_arguments)) if json_fields else [*args]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)


class CommandGroup(click.Group):
    """A group of commands whose help starts with examples."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        options.setdefault("context_settings", dict(CONTEXT_SETTINGS))
        super().__init__(*arguments, **options)
        self.examples = examples

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with the whole first sentence of its help, which click would cut at the margin."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, found.get_short_help_str(_MAX_SUMMARY)) for name, found in commands if found and not found.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help(ctx, formatter)


class DefaultCommandGroup(CommandGroup):
    """A group with a default command: `trainyard rules JOB` means `trainyard rules show JOB`."""

    def __init__(self, *arguments: Any, default: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ("-h", "--help")
        if not is_help and (not args or args[0] not in self.commands):
            args = [self._default, *args]
        return super().parse_args(ctx, args)


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


def complete_profiles(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the profiles, and the name of the yard on this machine."""
    names = [*profiles_of(ctx.find_root().obj or os.environ).names(), LOCAL]
    return [name for name in names if name.startswith(incomplete)]


def profile_option(function: F) -> F:
    """Add the option --profile to a command that uses a yard which the user has logged in to."""

    def select(ctx: click.Context, _: click.Parameter, name: str | None) -> None:
        if name is not None:
            root = ctx.find_root()
            root.obj = {**root.obj, PROFILE_VARIABLE: name}

    return click.option(
        "--profile",
        metavar="NAME",
        expose_value=False,
        callback=select,
        shell_complete=complete_profiles,
        help="Profile of a yard that you have logged in to; local is the yard on this machine. Default: "
        "$TRAINYARD_PROFILE, else the profile in use.",
    )(function)


def yard_option(function: F) -> F:
    """Add the options --home, --profile and --endpoint to a command that calls the API of a yard, wherever it runs."""

    def remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        ctx.meta[_ENDPOINT] = value

    return home_option(
        click.option(
            "--endpoint",
            metavar="URL",
            expose_value=False,
            callback=remember,
            help="Address of a yard on another machine. Default: $TRAINYARD_ENDPOINT, else $AWS_ENDPOINT_URL, else "
            "that of `trainyard login`, else the yard of the home folder.",
        )(profile_option(function))
    )


def selected_endpoint() -> str | None:
    """Return the value of --endpoint."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_ENDPOINT) if context else None


def json_option(function: F) -> F:
    """Add the option --json to a command that shows something. Its value goes to `print_json`."""
    return _json_option((), "Print JSON: all of it, or only some fields, separated by commas.")(function)


def result_option(*fields: str) -> Callable[[F], F]:
    """Add the option --json to a command that does something. Unknown fields are refused before it does it."""
    return _json_option(fields, f"Print the result as JSON: all of it, or only some fields of {', '.join(fields)}.")


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


def select_target(folder: Path | None) -> ClientTarget:
    """Return the yard for AWS clients: that of --home, else of a profile, else the one that runs on this machine."""
    remote = None if folder else profile_target(environment())
    return remote or running_yard(folder).target


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


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Ask on the terminal. Ends the command after a no; raises Failure without a terminal, unless --yes confirms it."""
    if is_confirmed:
        return
    if not sys.stdin.isatty():
        raise Failure(
            "Nothing was done, because there is no terminal to confirm it.",
            why=question,
            next_step="the same command with --yes",
            code=ExitCode.USAGE,
        )
    ask(question)


def ask(question: str) -> None:
    """Ask on the terminal, and end the command after a no."""
    if not click.confirm(question, err=True):
        say("Nothing was done.")
        raise click.exceptions.Exit(ExitCode.FAILED)


def yes_option(function: F) -> F:
    """Add the option --yes to a command that asks before it acts."""
    return click.option("-y", "--yes", "is_confirmed", is_flag=True, help="Do not ask for confirmation.")(function)


def say(text: str) -> None:
    """Print a message to stderr, which is for everything but data."""
    click.echo(text, err=True)


def size_text(count: float) -> str:
    """Return a number of bytes as text, such as `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _json_option(fields: Sequence[str], about: str) -> Callable[[F], F]:
    return click.option("--json", "as_json", type=JsonFieldsParameter(fields), metavar="[FIELDS]", help=about)


def _attach_json_fields(
    args: Sequence[str], json_fields: JsonFieldsParameter, *, takes_arguments: bool
) -> Iterator[str]:
    """Yield the arguments with the fields of --json joined to it, because they may be missing."""
    end = args.index("--") if "--" in args else len(args)
    position = 0
    while position < end:
        word, after = args[position], "".join(args[position + 1 : min(position + 2, end)])
        if word != "--json":
            yield word
        elif json_fields.could_be(after, takes_arguments=takes_arguments):
            yield f"--json={after}"
            position += 1
        else:
            yield "--json="
        position += 1
    yield from args[end:]
