"""Log lines as JSON, one object a line, for programs that run unattended."""

import contextlib
import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from trainyard.foundation.files import PRIVATE_FILE

LIMIT_BYTES = 16 * 1024 * 1024  # of a log file, after which it is put aside and a new one begun
KEPT = 3  # files that were put aside

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """The message is constant; what varies stands in fields of its own."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "source": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in record.__dict__.items() if name not in _STANDARD)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class RotatedStream(logging.StreamHandler[TextIO]):
    """A stream that may be an open log file, which is put aside while the program runs and not only when it starts.

    The descriptor stays the same, so that what does not go through logging, a traceback at the end for one, follows.
    """

    def __init__(self, stream: TextIO, file: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        super().__init__(stream)
        self._file, self._limit_bytes = file, limit_bytes

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        with contextlib.suppress(OSError, ValueError):  # a stream may have no descriptor, and a log must not fail
            self._rotate(self.stream.fileno())

    def _rotate(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        # Whose output goes elsewhere, to a terminal or a log of its own, is left alone.
        if status.st_size < self._limit_bytes or not os.path.samestat(status, self._file.stat()):
            return
        put_aside(self._file)
        opened = open_log(self._file)
        for each in (1, 2, descriptor):
            if os.path.samestat(os.fstat(each), status):
                os.dup2(opened, each)
        os.close(opened)


def put_aside(file: Path) -> None:
    """Rename a log file to `.1`, and those that were put aside before to the next number; the oldest goes."""
    for number in range(KEPT - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            _aside(file, number).replace(_aside(file, number + 1))
    file.replace(_aside(file, 1))


def _aside(file: Path, number: int) -> Path:
    return file.with_name(f"{file.name}.{number}")


def open_log(file: Path) -> int:
    """A descriptor that appends to a log file, which only its owner may read."""
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)


def write_journal(stream: TextIO, level: str, *, file: Path | None = None) -> None:
    """Send every record of this process to `stream`. Where that is the log file given, it is kept short."""
    channel = logging.StreamHandler(stream) if file is None else RotatedStream(stream, file)
    channel.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[channel], force=True)
