"""The events of a job on a terminal: its log, its statuses, and a spinner with the time in the current one."""

import contextlib
import sys
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Self, TextIO

import click

from trainyard._sdk.training.cloudwatch import LogLine
from trainyard._sdk.training.console import EventPrinter, terminal_safe
from trainyard._sdk.training.stream import FINAL
from trainyard.cli.terminal.console import say
from trainyard.cli.terminal.drawing import is_terminal
from trainyard.cli.terminal.progress import spinner


@contextlib.contextmanager
def event_printer(lines: TextIO, *, created_at: datetime, instance_count: int) -> Iterator[EventPrinter]:
    """Return what prints the events of a job: the log to `lines`, all else to stderr, which may be a terminal."""
    if not is_terminal(sys.stderr):
        yield EventPrinter(lines, sys.stderr, created_at=created_at, instance_count=instance_count)
        return
    with _TerminalEventPrinter(lines, sys.stderr, created_at=created_at, instance_count=instance_count) as printer:
        yield printer


class _TerminalEventPrinter(EventPrinter):
    """Draws a spinner below the last status until the next event."""

    def __enter__(self) -> Self:
        self._spinner = contextlib.ExitStack()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spinner.close()

    def print_line(self, line: LogLine) -> None:
        self._spinner.close()
        super().print_line(line)

    def print_progress(self, elapsed: str, word: str, text: str) -> None:
        self._spinner.close()
        time, status = click.style(f"{elapsed:>8}", dim=True), click.style(f"{word:<12}", bold=True)
        say(f"{time}  {status} {terminal_safe(text)}".rstrip())
        if elapsed and word not in FINAL:
            self._spinner.enter_context(spinner(word))
