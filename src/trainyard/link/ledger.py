"""What an instance made outside its folder, so that it can be cleared away whoever dies.

An agent writes an entry before it makes the thing. What is in the ledger therefore may not exist, and what exists is in
the ledger. A process is the one exception: it has no name before it is born, so it is entered right after, and must end
with its keeper until then.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.files import PRIVATE_FILE, sync_folder


class LedgerKind(StrEnum):
    """What can be made. The members of an entry's details stand beside each."""

    CGROUP = "cgroup"  # path: of the group's folder
    MOUNT = "mount"  # path: where it is mounted, in the namespace of the agent
    FOLDER = "folder"  # path: removed with all that is in it
    PROCESS = "process"  # pid, started: as foundation.home.process_start tells it
    CONTAINER = "container"  # tool, instance: the folder that its label names, see link.containers
    KEEPER = "keeper"  # pid, started: of a process that removes what it keeps, and ends, once its agent is gone


@dataclass(frozen=True, slots=True)
class Entry:
    kind: LedgerKind
    details: Mapping[str, Any] = field(default_factory=dict)


class Ledger:
    """The ledger in one file; appended to by one agent, read by anyone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, kind: LedgerKind, **details: Any) -> Entry:
        """Enter a thing; the entry is on disk when this returns."""
        line = json.dumps({"kind": kind.value, **details}).encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            if not os.fstat(descriptor).st_size:
                sync_folder(self._path.parent)  # before anything is in it, so that an entry tells that it was done
            os.write(descriptor, line)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        return Entry(kind, details)

    def entries(self) -> list[Entry]:
        """Everything that was entered, in order; a line that a crash cut short was followed by nothing made."""
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return [self._entry(line) for line in lines[:-1]]

    def _entry(self, line: bytes) -> Entry:
        try:
            values = dict(json.loads(line))
            return Entry(LedgerKind(values.pop("kind")), values)
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{self._path} has a line that is not an entry: {line[:80]!r}.") from error
