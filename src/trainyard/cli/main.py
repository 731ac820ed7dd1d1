"""The entry of the command line: finds the command, and turns every error into words and an exit code."""

import importlib
import os
import sys
import traceback

import click

from trainyard import __version__
from trainyard.cli.console import say, write_examples
from trainyard.cli.failure import ExitCode, Failure, exit_code
from trainyard.foundation.errors import TrainyardError

# Where each command lives; a module is imported when its command is called, so that `env` starts fast.
COMMANDS = {
    "up": "up",
    "down": "down",
    "status": "status",
    "run": "run",
    "tune": "tune",
    "ls": "ls",
    "describe": "describe",
    "logs": "logs",
    "metrics": "metrics",
    "rules": "rules",
    "tensors": "tensors",
    "replay": "replay",
    "top": "top",
    "stop": "stop",
    "interrupt": "interrupt",
    "spot": "spot",
    "drill": "drill",
    "rm": "rm",
    "env": "env",
    "connect": "connect",
    "disconnect": "connect",
    "user": "user",
    "quota": "quota",
    "images": "images",
    "engines": "engines",
    "backup": "backup",
    "restore": "restore",
    "gc": "gc",
    "doctor": "doctor",
    "completion": "completion",
}

EXAMPLES = (
    "trainyard run train.py         train a script, in a yard that is started where none runs",
    "trainyard up --detach          start a yard in the background",
    'eval "$(trainyard env)"        let AWS clients of this shell use it',
    "aws s3 mb s3://my-bucket       … unmodified",
    "trainyard down                 stop it",
)


# What other command lines call what we do.
ELSEWHERE = {
    "list": "ls",
    "jobs": "ls",
    "ps": "ls",
    "submit": "run",
    "train": "run",
    "start": "up",
    "show": "describe",
    "get": "describe",
    "cancel": "stop",
    "kill": "stop",
    "delete": "rm",
    "remove": "rm",
    "nodes": "engines",
    "queue": "top",
}


class Group(click.Group):
    """The commands, imported one by one when asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = getattr(importlib.import_module(f"trainyard.cli.{module}"), cmd_name)
        assert isinstance(command, click.Command), f"trainyard.cli.{module} has no command {cmd_name}"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and (meant := _meant(name)):
            ctx.fail(f"No such command '{name}'. Did you mean '{meant}'?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Errors are printed while the context still says whether in colour."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:  # the edge of the process
            return _report(error, show_traceback=bool(ctx.params["debug"]))

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, EXAMPLES)
        super().format_help(ctx, formatter)


@click.group(
    cls=Group,
    name="trainyard",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="trainyard")
@click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Whether to colour output."
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def trainyard(ctx: click.Context, color: str, debug: bool) -> None:  # noqa: ARG001 - read from the context
    """A managed training service on your own machines, speaking the Amazon SageMaker API."""
    ctx.color = _wants_color(color)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Run one command and end the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and tell its exit code; errors are printed, not raised."""
    try:
        result = trainyard.main(args=arguments, prog_name="trainyard", standalone_mode=False)
    except BrokenPipeError:
        # The reader of our output left; what Python writes at the exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return ExitCode.INTERRUPTED
    except click.ClickException as error:  # of the arguments before the command
        return _report(error, show_traceback=False)
    return result if isinstance(result, int) else ExitCode.OK


def _meant(name: str) -> str:
    """The command whose name somebody may have had in mind, or nothing."""
    from difflib import get_close_matches  # which only who errs waits for

    near = get_close_matches(name, COMMANDS, 1, cutoff=0.7)
    return ELSEWHERE.get(name) or (near[0] if near else "")


def _report(error: Exception, *, show_traceback: bool) -> int:
    if show_traceback:
        traceback.print_exception(error)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "trainyard"
        _print_error(error.format_message(), next_step=f"{path} -h")
        return ExitCode.USAGE
    if isinstance(error, click.ClickException):
        _print_error(error.format_message())
        return error.exit_code
    if isinstance(error, Failure):
        _print_error(error.message, why=error.why, next_step=error.next_step)
        return error.code
    if isinstance(error, TrainyardError):
        _print_error(error.message, why=str(error.__cause__ or ""))
        return exit_code(error)
    if isinstance(error, OSError) and error.filename:
        _print_error(f"{error.filename}: {error.strerror}.")
        return ExitCode.FAILED
    _print_error(
        f"{type(error).__name__}: {error}",
        why="This is a fault of Trainyard, or something its authors did not foresee.",
        next_step=f"trainyard --debug {' '.join(sys.argv[1:])}",
    )
    return ExitCode.FAILED


def _print_error(what: str, *, why: str = "", next_step: str = "") -> None:
    say(click.style("error: ", fg="red", bold=True) + what)
    if why:
        say(f"  why: {why}")
    if next_step:
        say(f" next: {next_step}")


def _wants_color(choice: str) -> bool | None:
    """None leaves it to whether the output is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None
