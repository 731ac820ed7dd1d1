"""`trainyard down`: stop a yard."""

import os
import select
import signal
from pathlib import Path

import click

from trainyard.cli.terminal.console import (
    CommandWithExamples,
    command_line,
    home_option,
    result_option,
    say,
    select_home,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.progress import spinner
from trainyard.foundation.errors import NotPermitted
from trainyard.foundation.home import Home, Runtime


@click.command(cls=CommandWithExamples, examples=("trainyard down", "trainyard down --timeout 120"))
@home_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds to wait until it has stopped.",
)
@result_option("Pid", "Stopped")
def down(folder: Path | None, timeout: float, as_json: JsonFields | None) -> None:
    """Stop the yard and wait until it has stopped. No acknowledged data is lost; `trainyard up` starts it again."""
    home = select_home(folder)
    home.check()
    runtime = home.runtime()
    if runtime is not None:
        with spinner("Stopping the yard"):
            _stop(home, runtime, timeout_s=timeout)
    if as_json:
        print_json({"Pid": runtime.pid if runtime else None, "Stopped": runtime is not None}, as_json)
    elif runtime is None:
        say(f"No yard is running on {home.root}.")
    else:
        say(f"Stopped the yard (process {runtime.pid}).")


def _stop(home: Home, runtime: Runtime, *, timeout_s: float) -> None:
    try:
        # A pidfd, unlike a process id, can never refer to another process later.
        process = os.pidfd_open(runtime.pid)
    except ProcessLookupError:
        return
    try:
        if not runtime.is_alive:
            return
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not _has_ended(process, timeout_s):
            raise _still_running(home, runtime, timeout_s=timeout_s)
    except PermissionError as error:
        raise NotPermitted(f"The yard (process {runtime.pid}) belongs to another user.") from error
    finally:
        os.close(process)


def _has_ended(process: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _still_running(home: Home, runtime: Runtime, *, timeout_s: float) -> Failure:
    return Failure(
        f"The yard (process {runtime.pid}) is still running {timeout_s:g} s after the signal to stop.",
        why="It is finishing open requests.",
        next_step=f"{command_line('down', home)}, or kill -9 {runtime.pid}, which loses no acknowledged data",
        code=ExitCode.TIME_LIMIT,
    )
