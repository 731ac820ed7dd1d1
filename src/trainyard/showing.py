"""What a person sees of a job that is followed: its lines, and between them how it fares."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TextIO

from trainyard.following import Description, Ended, Event, LogLine

# Colours may pass; every other control sequence could move the cursor, name the window or fill the clipboard.
_SEQUENCE = re.compile(
    r"(?P<colour>\x1b\[[0-9;]*m)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b.?|\x9b[0-?]*[ -/]*[@-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]",
    re.DOTALL,
)


class Show:
    """Writes events to a person: lines of the job to `lines`, everything else to `progress`."""

    def __init__(self, lines: TextIO, progress: TextIO, *, created_at: datetime | None = None) -> None:
        self._lines, self._progress, self._created_at = lines, progress, created_at
        self._is_terminal = lines.isatty()

    def all(self, events: Iterable[Event], *, instance_count: int) -> Description:
        """Show events up to the end of the job and return its description then."""
        for event in events:
            if isinstance(event, Ended):
                return event.description
            if isinstance(event, LogLine):
                self.line(event, is_named=instance_count > 1)
            else:
                self.status(event.status, event.message, at=event.at)
        raise AssertionError("following a job ends with its end")

    def line(self, line: LogLine, *, is_named: bool) -> None:
        text = inert(line.text) if self._is_terminal else line.text
        self._lines.write(f"[{line.instance}] {text}\n" if is_named else f"{text}\n")
        self._lines.flush()

    def status(self, status: str, message: str, *, at: datetime) -> None:
        self._created_at = self._created_at or at
        elapsed = max((at - self._created_at).total_seconds(), 0)
        self._progress.write(f"{_clock(elapsed):>8}  {status:<12} {inert(message)}".rstrip() + "\n")
        self._progress.flush()


def inert(text: str) -> str:
    """Text that a terminal can only show, in colour if it wants; of a line that was drawn over, its last state."""
    last = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    shown = _SEQUENCE.sub(lambda found: found["colour"] or "", last)
    return f"{shown}\x1b[0m" if "\x1b[" in shown else shown


def summary(description: Mapping[str, Any]) -> str:
    """How a job ended, and why or with what."""
    name, status = description["TrainingJobName"], description["TrainingJobStatus"]
    seconds = description.get("TrainingTimeInSeconds")
    text = f'Training job "{name}" is {status}' + (f" after {_clock(seconds)} of training" if seconds else "") + "."
    billable = description.get("BillableTimeInSeconds")
    if description.get("EnableManagedSpotTraining") and seconds and billable is not None:
        text += f" Spot saved {1 - billable / seconds:.0%}."
    for line in description.get("FailureReason", "").splitlines():
        text += f"\n  {inert(line)}"
    model = description.get("ModelArtifacts", {}).get("S3ModelArtifacts")
    return text + (f"\nmodel: {model}" if model and status == "Completed" else "")


def _clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds % 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
