"""Entry point of the command line: finds the command, and turns errors into messages and exit codes."""

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

from trainyard import __version__
from trainyard.cli.terminal.console import CONTEXT_SETTINGS, say, write_examples
from trainyard.cli.terminal.failure import ExitCode, Failure, exit_code
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.extras import extra_of


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command of the command line: its module below trainyard.cli, and its line in the help."""

    module: str
    summary: str


# A module is imported when its command is called, and the help needs none of them, to keep the start fast.
COMMANDS = {
    "up": CommandEntry("yard.up", "Start a yard."),
    "down": CommandEntry("yard.down", "Stop the yard."),
    "status": CommandEntry("yard.status", "Show whether a yard is running, and its resources."),
    "init": CommandEntry("run.init", "Write a small project to start from."),
    "run": CommandEntry("run.command", "Train a script."),
    "tune": CommandEntry("tuning.tune", "Tune the hyperparameters of a script."),
    "ls": CommandEntry("jobs.ls", "List training and processing jobs."),
    "describe": CommandEntry("jobs.describe", "Show all details of a job."),
    "logs": CommandEntry("jobs.logs", "Show the log of a job."),
    "metrics": CommandEntry("jobs.metrics", "Show the metrics of a training job."),
    "tensorboard": CommandEntry("jobs.tensorboard", "Start TensorBoard on the files of training jobs."),
    "compare": CommandEntry("jobs.compare", "Show how training jobs differ."),
    "lineage": CommandEntry("lineage.lineage", "Show what a model or a training job came from."),
    "reproduce": CommandEntry("lineage.reproduce", "Run a training job again from what was recorded of it."),
    "models": CommandEntry("lineage.models", "Register models, and approve or reject them."),
    "rules": CommandEntry("debugger.rules", "Show debugger rules, and evaluate them again."),
    "profile": CommandEntry("profiling.profile", "Show where the time of a training job goes."),
    "advise": CommandEntry("profiling.advise", "Show what to change in a training job, and measure the gain."),
    "tensors": CommandEntry("debugger.tensors", "Show, compare and export the tensors of jobs."),
    "replay": CommandEntry("debugger.replay", "Replay a recorded step of a job."),
    "open": CommandEntry("yard.open_dashboard", "Open the dashboard in a browser."),
    "top": CommandEntry("yard.top", "Watch the jobs and the machine."),
    "stop": CommandEntry("jobs.stop", "Stop jobs."),
    "interrupt": CommandEntry("jobs.spot", "Interrupt a spot job."),
    "spot": CommandEntry("jobs.spot", "Show interruptions and savings of spot jobs."),
    "drill": CommandEntry("jobs.resume_drill", "Test whether a script resumes."),
    "rm": CommandEntry("jobs.stop", "Remove ended jobs."),
    "env": CommandEntry("yard.shell", "Print the exports that make AWS clients use the yard."),
    "connect": CommandEntry("yard.connect", "Make AWS clients and the sagemaker SDK use the yard."),
    "disconnect": CommandEntry("yard.connect", "Restore the files that `connect` replaced."),
    "login": CommandEntry("yard.login", "Log in to a yard on another machine."),
    "logout": CommandEntry("yard.login", "Forget a yard on another machine."),
    "yards": CommandEntry("yard.login", "Show the yards you have logged in to, and choose one."),
    "user": CommandEntry("admin.user", "Add, list and remove users."),
    "quota": CommandEntry("admin.quota", "Limit the instances and the storage of users."),
    "images": CommandEntry("admin.images", "Map images to Python interpreters or to container images."),
    "engines": CommandEntry("admin.engines", "Show the engines and which jobs they run."),
    "config": CommandEntry("yard.config", "Show and change the settings of the yard."),
    "df": CommandEntry("yard.df", "Show what uses the disk, by user and job."),
    "backup": CommandEntry("yard.maintenance", "Back up all data of the yard."),
    "restore": CommandEntry("yard.maintenance", "Restore a backup to an empty home folder."),
    "gc": CommandEntry("yard.maintenance", "Remove unused data."),
    "doctor": CommandEntry("yard.doctor", "Check this machine and the home folder."),
    "upgrade-check": CommandEntry("yard.upgrade_check", "Check whether this version can open the home folder."),
    "service": CommandEntry("yard.service", "Start the yard at every boot, with systemd."),
    "completion": CommandEntry("yard.shell", "Print the completion script of a shell."),
}

EXAMPLES = (
    "trainyard run train.py         train a script; starts a yard if none is running",
    "trainyard up --detach          start a yard in the background",
    'eval "$(trainyard env)"        make AWS clients in this shell use the yard',
    "aws s3 mb s3://my-bucket       any unmodified AWS client works",
    "trainyard down                 stop the yard",
)


# Names of these commands in other command lines.
SYNONYMS = {
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
    "diff": "compare",
    "delete": "rm",
    "remove": "rm",
    "upgrade": "upgrade-check",
    "systemd": "service",
    "du": "df",
    "settings": "config",
    "set": "config",
    "new": "init",
    "create": "init",
    "profiler": "profile",
    "advice": "advise",
    "nodes": "engines",
    "queue": "top",
    "dashboard": "open",
    "ui": "open",
}


class LazyGroup(click.Group):
    """Imports each command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(f"trainyard.cli.{entry.module}"), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command), f"trainyard.cli.{entry.module} has no command {cmd_name}"
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem[str]"]:
        """Complete the commands without importing them, and the options."""
        from click.shell_completion import CompletionItem

        names = [name for name in COMMANDS if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=COMMANDS[name].summary) for name in names]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and (similar := _similar_command(name)):
            ctx.fail(f"No such command '{name}'. Did you mean '{similar}'?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. Errors are printed here, where the context knows whether to use colour."""
        ctx.color = _wants_color(ctx.params["color"], ctx.obj or {})
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        # The edge of the process.
        except Exception as error:
            return _report(error, show_traceback=bool(ctx.params["debug"]))

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, EXAMPLES)
        super().format_help(ctx, formatter)


@click.group(
    cls=LazyGroup,
    name="trainyard",
    invoke_without_command=True,
    context_settings={**CONTEXT_SETTINGS, "max_content_width": 100},
)
@click.version_option(__version__, prog_name="trainyard")
@click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="When to colour the output."
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def trainyard(ctx: click.Context, color: str, debug: bool) -> None:  # noqa: ARG001 - `invoke` reads them
    """A managed training service on your own machines with the Amazon SageMaker API."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Run one command and exit with its exit code."""
    # botocore would load the native library of the CRT, which takes a third of the time of a short command. It does
    # without, as nothing here needs what that adds.
    sys.modules.setdefault("awscrt.auth", None)  # type: ignore[arg-type]
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: list[str], environment: Mapping[str, str]) -> int:
    """Run one command and return its exit code. Errors are printed, not raised."""
    try:
        result = trainyard.main(args=arguments, prog_name="trainyard", standalone_mode=False, obj=environment)
    except BrokenPipeError:
        # The reader of the output has gone; redirect it, so that Python does not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return ExitCode.INTERRUPTED
    # Raised for the arguments before the command.
    except click.ClickException as error:
        with click.Context(trainyard) as ctx:
            ctx.color = _wants_color("auto", environment)
            return _report(error, show_traceback=False)
    return result if isinstance(result, int) else ExitCode.OK


def _similar_command(name: str) -> str:
    """Return the command that the user may have meant, or an empty string."""
    # Imported here: only a mistake needs it.
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, 1, cutoff=0.7)
    return SYNONYMS.get(name) or (near[0] if near else "")


def _report(error: Exception, *, show_traceback: bool) -> int:
    if show_traceback:
        traceback.print_exception(error)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "trainyard"
        _print_error(_usage_text(error), next_step=f"{path} -h")
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
    if isinstance(error, ModuleNotFoundError) and (missing := extra_of(error)):
        _print_error(missing.message)
        return ExitCode.FAILED
    if isinstance(error, OSError) and error.filename:
        _print_error(f"{error.filename}: {error.strerror}.")
        return ExitCode.FAILED
    _print_error(
        f"{type(error).__name__}: {error}",
        why="This is probably a bug in Trainyard.",
        next_step=f"trainyard --debug {' '.join(sys.argv[1:])}",
    )
    return ExitCode.FAILED


def _usage_text(error: click.UsageError) -> str:
    """Return click's message in the words and the form of the other messages: one line, without names of types."""
    text = " ".join(error.format_message().split())
    return (
        text.replace("is not a valid integer range.", "is not a whole number.")
        .replace("is not a valid integer.", "is not a whole number.")
        .replace("is not a valid float range.", "is not a number.")
    )


def _print_error(what: str, *, why: str = "", next_step: str = "") -> None:
    say(click.style("error: ", fg="red", bold=True) + what)
    if why:
        say(f"  why: {why}")
    if next_step:
        say(f" next: {next_step}")


def _wants_color(choice: str, environment: Mapping[str, str]) -> bool | None:
    """Return whether to use colour; None to use it only on a terminal."""
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    return True if environment.get("FORCE_COLOR") else None
