"""The warnings and errors in the log of the server, newest first.

The log is a file of JSON lines that is rotated. It is read backward, a bounded part at a time. A list continues at the
inode of a file, which a rotation does not change, and an offset. Lines that are no entries are left out.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.journal import KEPT_FILES, rotated_file

# What one call reads.
MAX_READ_BYTES = 4 * 1024 * 1024
LEVELS = ("warning", "error")

_CHUNK_BYTES = 256 * 1024
_MAX_LINE_BYTES = 64 * 1024
_MAX_TEXT = 4000
_STANDARD = frozenset({"at", "level", "source", "message", "traceback"})
_POSITION = re.compile(r"([0-9]{1,20})\.([0-9]{1,20})")


@dataclass(frozen=True, slots=True)
class LoggedFault:
    """One entry of the log."""

    at: datetime
    level: str
    source: str
    message: str
    fields: dict[str, str] = field(default_factory=dict)
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class FaultPage:
    """Some entries, and where the next older ones are; None at the end."""

    faults: Sequence[LoggedFault]
    following: str | None


def read_faults(log: Path, *, level: str = "warning", text: str = "", limit: int = 100, after: str = "") -> FaultPage:
    """Return the newest entries from a level on that have a text, or those before `after`."""
    levels = LEVELS[LEVELS.index(level) :]
    wanted = text.lower().encode()
    files = _files(log)
    inode, end = _parse_position(after) if after else (0, -1)
    # A file that was rotated since is found by its inode; one that is gone has nothing left to tell.
    first = next((place for place, (_, status) in enumerate(files) if status.st_ino == inode), 0 if not after else None)
    if first is None:
        return FaultPage((), None)
    found, size = list[LoggedFault](), 0
    for place, (file, status) in enumerate(files[first:]):
        stop = end if after and place == 0 else status.st_size
        for offset, line in _lines_backward(file, stop):
            size += len(line) + 1
            fault = _fault(line, levels) if wanted in line.lower() else None
            if fault is not None:
                found.append(fault)
            if len(found) == limit or size >= MAX_READ_BYTES:
                return FaultPage(found, f"{status.st_ino}.{offset}")
    return FaultPage(found, None)


def _files(log: Path) -> list[tuple[Path, os.stat_result]]:
    files = [log, *(rotated_file(log, number) for number in range(1, KEPT_FILES + 1))]
    return [(file, file.stat()) for file in files if file.is_file()]


def _lines_backward(file: Path, end: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over the lines before an offset, the last first, with their offsets. A long line is cut."""
    with file.open("rb", buffering=0) as opened:
        at, rest = end, b""
        while at > 0:
            first = max(0, at - _CHUNK_BYTES)
            data = os.pread(opened.fileno(), at - first, first) + rest
            at = first
            begin = 0 if not first else data.find(b"\n") + 1
            if first and not begin and len(data) < _MAX_LINE_BYTES + _CHUNK_BYTES:
                rest = data
                continue
            rest = data[:begin]
            offset = at + begin
            lines = list[tuple[int, bytes]]()
            for line in data[begin:].split(b"\n"):
                lines.append((offset, line[:_MAX_LINE_BYTES]))
                offset += len(line) + 1
            yield from ((offset, line) for offset, line in reversed(lines) if line)


def _fault(line: bytes, levels: Sequence[str]) -> LoggedFault | None:
    """Return an entry of these levels; None for others."""
    try:
        entry: dict[str, Any] = json.loads(line)
        at = datetime.fromisoformat(entry["at"]).astimezone(UTC)
        level = str(entry["level"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if level == "critical":
        level = "error"
    if level not in levels:
        return None
    fields = {name: _text(value) for name, value in entry.items() if name not in _STANDARD}
    texts = (str(entry.get(name, "")) for name in ("source", "message", "traceback"))
    source, message, traceback = texts
    return LoggedFault(at, level, source, message, fields, traceback[-4 * _MAX_TEXT :])


def _text(value: object) -> str:
    return (value if isinstance(value, str) else json.dumps(value, default=str))[:_MAX_TEXT]


def _parse_position(position: str) -> tuple[int, int]:
    found = _POSITION.fullmatch(position)
    if found is None:
        raise InvalidRequest("The NextToken is not one of ListFaults; list without it.")
    return int(found[1]), int(found[2])
