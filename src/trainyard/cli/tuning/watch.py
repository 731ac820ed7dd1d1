"""Watch a tuning job in a terminal: a live table or, without a terminal, a line for each trial that ends."""

import sys
from datetime import UTC, datetime

import click

from trainyard._sdk.training.stream import FINAL
from trainyard._sdk.tuning.job import TuningJobHandle, detached_message
from trainyard._sdk.tuning.text import TuningProgress, summary
from trainyard.cli.terminal.blocks import Block, Title
from trainyard.cli.terminal.console import say
from trainyard.cli.terminal.failure import ExitCode
from trainyard.cli.terminal.live import QUIT_KEYS, LiveView, can_draw
from trainyard.cli.tuning.studies import study_blocks
from trainyard.foundation.errors import Unavailable

_REFRESH_S = 1.0


def watch_study(job: TuningJobHandle, *, shows_trials: bool = True) -> ExitCode:
    """Show a tuning job until it has ended, and return the exit code. The trials are data, and can be left out."""
    try:
        if not shows_trials:
            for _ in job.ended_trials():
                pass
        elif can_draw():
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
    last: list[Block] = []
    is_over = False
    with LiveView(sys.stdin.fileno(), sys.stdout) as view:
        while not is_over:
            try:
                description = job.describe()
                last = list(study_blocks(description, job.trials(), now=datetime.now(UTC)))
                shown = [*last, "", "q quits"]
                is_over = description["HyperParameterTuningJobStatus"] in FINAL
            # The yard may be restarting, which takes a second or two.
            except Unavailable as error:
                shown = [Title(error.message), *last]
            view.draw(shown)
            if not is_over and view.wait(_REFRESH_S) in QUIT_KEYS:
                raise KeyboardInterrupt
