"""Watching a tuning job from a terminal: a table that is drawn over, or a line for each trial that ends."""

import os
import sys
from datetime import UTC, datetime

import click

from trainyard.cli.console import say
from trainyard.cli.failure import ExitCode
from trainyard.cli.screen import Screen, can_draw
from trainyard.cli.studies import study_lines
from trainyard.following import FINAL
from trainyard.foundation.errors import Unavailable
from trainyard.tuning_job import TuningJob, detached
from trainyard.tuning_text import Progress, summary

_LEAVE = ("q", "Q", "\x1b", "\x04")
_LOOK_S = 1.0


def watch_study(job: TuningJob) -> ExitCode:
    """Show a tuning job until it has ended, and tell how it did."""
    try:
        if can_draw(os.environ):
            _draw(job)
        else:
            progress = Progress(job.describe())
            for trial in job.ended():
                click.echo(progress.line(trial))
    except KeyboardInterrupt:
        say(f"\n{detached(job.name)}")
        return ExitCode.INTERRUPTED
    description = job.describe()
    say(summary(description))
    status = description["HyperParameterTuningJobStatus"]
    return {"Completed": ExitCode.OK, "Stopped": ExitCode.STOPPED}.get(status, ExitCode.FAILED)


def _draw(job: TuningJob) -> None:
    """Draw the table over and over; a key that leaves is an interrupt."""
    lines: list[str] = []
    is_over = False
    with Screen(sys.stdin.fileno(), sys.stdout) as screen:
        while not is_over:
            try:
                description = job.describe()
                lines = [*study_lines(description, job.trials(), now=datetime.now(UTC)), "", "q leaves"]
                is_over = description["HyperParameterTuningJobStatus"] in FINAL
            except Unavailable as error:  # a restart takes a second or two
                lines = [f"! {error.message}", *[line for line in lines if not line.startswith("! ")]]
            screen.draw(lines)
            if not is_over and screen.wait(_LOOK_S) in _LEAVE:
                raise KeyboardInterrupt
