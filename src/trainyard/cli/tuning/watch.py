"""Watch a tuning job in a terminal: a live table or, without a terminal, a line for each trial that ends."""

import sys
from datetime import UTC, datetime

import click

from trainyard._sdk.training.stream import FINAL
from trainyard._sdk.tuning.job import TuningJobHandle, detached_message
from trainyard._sdk.tuning.text import TuningProgress, summary
from trainyard.cli.terminal.console import environment, say
from trainyard.cli.terminal.failure import ExitCode
from trainyard.cli.terminal.screen import Screen, can_draw
from trainyard.cli.tuning.studies import study_lines
from trainyard.foundation.errors import Unavailable

_QUIT_KEYS = ("q", "Q", "\x1b", "\x04")
_REFRESH_S = 1.0


def watch_study(job: TuningJobHandle) -> ExitCode:
    """Show a tuning job until it has ended, and return the exit code."""
    try:
        if can_draw(environment()):
            _draw(job)
        else:
            progress = TuningProgress(job.describe())
            for trial in job.ended_trials():
                click.echo(progress.line(trial))
    except KeyboardInterrupt:
        say(f"\n{detached_message(job.name)}")
        return ExitCode.INTERRUPTED
    description = job.describe()
    say(summary(description))
    status = description["HyperParameterTuningJobStatus"]
    return {"Completed": ExitCode.OK, "Stopped": ExitCode.STOPPED}.get(status, ExitCode.FAILED)


def _draw(job: TuningJobHandle) -> None:
    """Redraw the table until the tuning job has ended. A quit key raises KeyboardInterrupt."""
    lines: list[str] = []
    is_over = False
    with Screen(sys.stdin.fileno(), sys.stdout) as screen:
        while not is_over:
            try:
                description = job.describe()
                lines = [*study_lines(description, job.trials(), now=datetime.now(UTC)), "", "q quits"]
                is_over = description["HyperParameterTuningJobStatus"] in FINAL
            # The yard may be restarting, which takes a second or two.
            except Unavailable as error:
                lines = [f"! {error.message}", *[line for line in lines if not line.startswith("! ")]]
            screen.draw(lines)
            if not is_over and screen.wait(_REFRESH_S) in _QUIT_KEYS:
                raise KeyboardInterrupt
