"""Log lines as JSON, one object a line, for programs that run unattended."""

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

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


def write_journal(stream: TextIO, level: str) -> None:
    """Send every record of this process to `stream`."""
    channel = logging.StreamHandler(stream)
    channel.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[channel], force=True)
