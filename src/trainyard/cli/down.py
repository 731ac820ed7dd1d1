"""`trainyard down`: stop a yard."""

import os
import select
import signal
from pathlib import Path

import click

from trainyard.cli.console import Command, chosen_home, command_line, home_option, say
from trainyard.cli.failure import ExitCode, Failure
from trainyard.foundation.errors import NotPermitted
from trainyard.foundation.home import Home, Runtime


@click.command(cls=Command, short_help="Stop the yard.", examples=("trainyard down", "trainyard down --timeout 120"))
@home_option
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds to wait for its end."
)
def down(folder: Path | None, timeout: float) -> None:
    """Stop the yard and wait until it has ended. What it has acknowledged is kept; it may be started again."""
    home = chosen_home(folder)
    home.check()
    runtime = home.runtime()
    if runtime is None:
        say(f"No yard is running on {home.root}.")
        return
    _stop(home, runtime, timeout_s=timeout)
    say(f"The yard with process id {runtime.pid} has stopped.")


def _stop(home: Home, runtime: Runtime, *, timeout_s: float) -> None:
    try:
        # A descriptor of the process, unlike its id, can never come to mean another one.
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
        raise NotPermitted(f"The yard with process id {runtime.pid} belongs to another user.") from error
    finally:
        os.close(process)


def _has_ended(process: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _still_running(home: Home, runtime: Runtime, *, timeout_s: float) -> Failure:
    return Failure(
        f"The yard with process id {runtime.pid} was told to stop but still runs after {timeout_s:g} s.",
        why="It finishes the requests it has begun.",
        next_step=f"{command_line('down', home)}, or kill -9 {runtime.pid}, which loses nothing it has acknowledged",
        code=ExitCode.TIME_LIMIT,
    )
