"""Logs as JSON, one object per line, for programs that run unattended."""

import contextlib
import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from trainyard.foundation.files import PRIVATE_FILE

# A log file of this size is rotated.
MAX_LOG_BYTES = 16 * 1024 * 1024
# How many rotated files are kept.
KEPT_FILES = 3

_STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats records as JSON. Messages are constant; what varies is in fields of its own."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "source": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in record.__dict__.items() if name not in _STANDARD_FIELDS)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class RotatedStream(logging.StreamHandler[TextIO]):
    """Writes to a stream and, if that is an open log file, rotates it while the program runs.

    The descriptor stays the same, so output that bypasses logging, such as a final traceback, goes to the new file.
    """

    def __init__(self, stream: TextIO, file: Path, *, limit_bytes: int = MAX_LOG_BYTES) -> None:
        super().__init__(stream)
        self._file, self._limit_bytes = file, limit_bytes

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        # A stream may have no descriptor, and logging must not fail.
        with contextlib.suppress(OSError, ValueError):
            self._rotate(self.stream.fileno())

    def _rotate(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        # Output that goes elsewhere, to a terminal or another log, is left alone.
        if status.st_size < self._limit_bytes or not os.path.samestat(status, self._file.stat()):
            return
        rotate_log(self._file)
        opened = open_log(self._file)
        for each in (1, 2, descriptor):
            if os.path.samestat(os.fstat(each), status):
                os.dup2(opened, each)
        os.close(opened)


def rotate_log(file: Path) -> None:
    """Rename a log file to `.1`, and each rotated file to the next number. The oldest is removed."""
    for number in range(KEPT_FILES - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            rotated_file(file, number).replace(rotated_file(file, number + 1))
    file.replace(rotated_file(file, 1))


def rotated_file(file: Path, number: int) -> Path:
    return file.with_name(f"{file.name}.{number}")


def open_log(file: Path) -> int:
    """Return a descriptor that appends to a log file, which only its owner can read."""
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)


def write_journal(stream: TextIO, level: str, *, file: Path | None = None) -> None:
    """Send every record of this process to `stream`. If that is the given log file, it is rotated."""
    channel = logging.StreamHandler(stream) if file is None else RotatedStream(stream, file)
    channel.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[channel], force=True)
