"""Print the log and the status changes of a job to a terminal."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import TextIO

from trainyard._sdk.training.cloudwatch import LogLine
from trainyard._sdk.training.stream import Event, JobEnded, NoteAdded

# Colours are harmless; other control sequences could move the cursor, rename the window or fill the clipboard.
_SEQUENCE = re.compile(
    r"(?P<colour>\x1b\[[0-9;]*m)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b.?|\x9b[0-?]*[ -/]*[@-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]",
    re.DOTALL,
)


class EventPrinter:
    """Prints the events of a job: its log lines to `lines`, everything else to `progress`.

    If the job has several instances, each line starts with the name of its instance.
    """

    def __init__(
        self, lines: TextIO, progress: TextIO, *, created_at: datetime | None = None, instance_count: int = 1
    ) -> None:
        self._lines, self._progress, self._created_at = lines, progress, created_at
        self._shows_instance = instance_count > 1
        self._is_terminal = lines.isatty()

    def print_events(self, events: Iterable[Event]) -> None:
        """Print events until the job has ended."""
        for event in events:
            if isinstance(event, LogLine):
                self.print_line(event)
            elif isinstance(event, NoteAdded):
                self.print_progress("", "note", event.text)
            elif not isinstance(event, JobEnded):
                self.print_status(event.status, event.message, at=event.at)

    def print_line(self, line: LogLine) -> None:
        """Print a log line."""
        text = terminal_safe(line.text) if self._is_terminal else line.text
        self._lines.write(f"[{line.instance}] {text}\n" if self._shows_instance else f"{text}\n")
        self._lines.flush()

    def print_status(self, status: str, message: str, *, at: datetime) -> None:
        """Print a status with the time since the job was created."""
        self._created_at = self._created_at or at
        self.print_progress(duration_text(max((at - self._created_at).total_seconds(), 0.0)), status, message)

    def print_progress(self, elapsed: str, word: str, text: str) -> None:
        """Print a line that is not of the log: a status with the time, or a note without one."""
        self._progress.write(f"{elapsed:>8}  {word:<12} {terminal_safe(text)}".rstrip() + "\n")
        self._progress.flush()


def terminal_safe(text: str) -> str:
    """Return text without control sequences other than colours. Of an overwritten line, the last version is kept."""
    last = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    shown = _SEQUENCE.sub(lambda found: found["colour"] or "", last)
    return f"{shown}\x1b[0m" if "\x1b[" in shown else shown


def duration_text(seconds: float) -> str:
    """Return a duration as text: `4 s`, or `0.14 s` or `4.0 s` for a float; from a minute on `1:15` or `2:03:09`."""
    if isinstance(seconds, int) and seconds < 60:
        return f"{seconds} s"
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def price_text(usd: float) -> str:
    """Return a price as text: with cents, or with four digits if it is less than a dollar."""
    if usd >= 1 or not usd:
        return f"${usd:,.2f}"
    return f"${usd:.4f}" if usd >= 0.0001 else "less than $0.0001"
