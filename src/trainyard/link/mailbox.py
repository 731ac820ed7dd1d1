"""The mailbox of an instance: numbered commands that a yard leaves and an agent picks up.

Each command is a file named after its number, which appears whole or not at all. Nothing is ever changed or removed, so
a restarted agent reads from the beginning, and a running one asks for what came after the last.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.files import make_folder, sync_folder
from trainyard.link.contract import Command, CommandKind

_NAME = re.compile(r"([0-9]{8})\.json")


class Mailbox:
    """The commands in one folder. Any number of writers may put at once; each command gets a number of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, kind: CommandKind, payload: Mapping[str, Any] | None = None) -> Command:
        """Leave a command. When this returns it is there, even after a power cut."""
        content = dict(payload or {})
        with self._write_command(kind, content) as file:
            number = self._link(file)
        return Command(number, kind, content)

    def copy(self, command: Command) -> None:
        """Leave a command of another mailbox under its own number. Does nothing if there is one already."""
        if self._file(command.number).exists():
            return
        with self._write_command(command.kind, command.payload) as file, suppress(FileExistsError):
            self._file(command.number).hardlink_to(file)

    def read(self, after: int) -> list[Command]:
        """Return the commands with a higher number, in order."""
        return [self._read_command(number) for number in self._numbers() if number > after]

    @contextmanager
    def _write_command(self, kind: CommandKind, payload: Mapping[str, Any]) -> Iterator[Path]:
        """Yield a file with the command. The caller links it to its name, which is made durable at the end."""
        make_folder(self._folder)
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".new-") as file:
            file.write(json.dumps({"kind": kind.value, "payload": dict(payload)}).encode())
            file.flush()
            os.fsync(file.fileno())
            yield Path(file.name)
        sync_folder(self._folder)

    def _link(self, source: Path) -> int:
        # A link fails if the name exists, so of two concurrent writers one moves on to the next number.
        number = max(self._numbers(), default=0)
        while True:
            number += 1
            try:
                self._file(number).hardlink_to(source)
            except FileExistsError:
                continue
            return number

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - polled often, and only the names count
        except FileNotFoundError:
            return []
        return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)

    def _read_command(self, number: int) -> Command:
        file = self._file(number)
        try:
            values = json.loads(file.read_bytes())
            return Command(number, CommandKind(values["kind"]), values["payload"])
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{file} is not a command: {error}.") from error

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:08d}.json"
