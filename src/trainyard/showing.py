"""What a person sees of a job that is followed: its lines, and between them how it fares."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import TextIO

from trainyard.following import Ended, Event, Noted
from trainyard.job_logs import LogLine

# Colours may pass; every other control sequence could move the cursor, name the window or fill the clipboard.
_SEQUENCE = re.compile(
    r"(?P<colour>\x1b\[[0-9;]*m)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b.?|\x9b[0-?]*[ -/]*[@-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]",
    re.DOTALL,
)


class Show:
    """Writes events to a person: lines of the job to `lines`, everything else to `progress`.

    Where the job has several instances, each line begins with the name of its own.
    """

    def __init__(
        self, lines: TextIO, progress: TextIO, *, created_at: datetime | None = None, instance_count: int = 1
    ) -> None:
        self._lines, self._progress, self._created_at = lines, progress, created_at
        self._is_named = instance_count > 1
        self._is_terminal = lines.isatty()

    def all(self, events: Iterable[Event]) -> None:
        """Show events up to the end of the job."""
        for event in events:
            if isinstance(event, LogLine):
                self.line(event)
            elif isinstance(event, Noted):
                self._report("", "note", event.text)
            elif not isinstance(event, Ended):
                self.status(event.status, event.message, at=event.at)

    def line(self, line: LogLine) -> None:
        text = inert(line.text) if self._is_terminal else line.text
        self._lines.write(f"[{line.instance}] {text}\n" if self._is_named else f"{text}\n")
        self._lines.flush()

    def status(self, status: str, message: str, *, at: datetime) -> None:
        self._created_at = self._created_at or at
        self._report(clock_text(max((at - self._created_at).total_seconds(), 0.0)), status, message)

    def _report(self, elapsed: str, word: str, text: str) -> None:
        self._progress.write(f"{elapsed:>8}  {word:<12} {inert(text)}".rstrip() + "\n")
        self._progress.flush()


def inert(text: str) -> str:
    """Text that a terminal can only show, in colour if it wants; of a line that was drawn over, its last state."""
    last = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    shown = _SEQUENCE.sub(lambda found: found["colour"] or "", last)
    return f"{shown}\x1b[0m" if "\x1b[" in shown else shown


def clock_text(seconds: float) -> str:
    """A stretch of time as people read it: 4 s or, of a number that may have tenths, 4.0 s; then 1:15, 2:03:09."""
    if seconds < 60:
        return f"{seconds} s" if isinstance(seconds, int) else f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def money(usd: float) -> str:
    """A price: in cents, and where it is less than a dollar, in as many digits as tell something."""
    if usd >= 1 or not usd:
        return f"${usd:,.2f}"
    return f"${usd:.4f}" if usd >= 0.0001 else "less than $0.0001"
