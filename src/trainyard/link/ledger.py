"""What an instance made outside its folder, so that it can be cleared away whichever process dies.

An agent writes an entry before it makes the thing. So what is in the ledger may not exist, but what exists is in the
ledger. The one exception is a process, which has no pid before it starts: it is entered right after, and until then
must end with its parent.
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
    """The kinds of entries, and the members of their details.

    CGROUP: path of the group's folder. MOUNT: path where it is mounted, in the namespace of the agent. FOLDER: path,
    removed with its content. PROCESS: pid, started (see foundation.home.process_start). CONTAINER: tool, instance (the
    folder in its label, see link.containers). SUPERVISOR: pid, started, of a process that removes its container and
    exits once its agent is gone.
    """

    CGROUP = "cgroup"
    MOUNT = "mount"
    FOLDER = "folder"
    PROCESS = "process"
    CONTAINER = "container"
    SUPERVISOR = "keeper"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    kind: LedgerKind
    details: Mapping[str, Any] = field(default_factory=dict)


class Ledger:
    """The ledger in one file. One agent appends; anyone may read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, kind: LedgerKind, **details: Any) -> LedgerEntry:
        """Add an entry; it is on disk when this returns."""
        line = json.dumps({"kind": kind.value, **details}).encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            if not os.fstat(descriptor).st_size:
                # Before the first entry, so that an entry proves that the file's name is durable.
                sync_folder(self._path.parent)
            os.write(descriptor, line)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        return LedgerEntry(kind, details)

    def entries(self) -> list[LedgerEntry]:
        """Return all entries in order. A line that a crash cut short does not count: nothing was made after it."""
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return [self._entry(line) for line in lines[:-1]]

    def _entry(self, line: bytes) -> LedgerEntry:
        try:
            values = dict(json.loads(line))
            return LedgerEntry(LedgerKind(values.pop("kind")), values)
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{self._path} has a line that is not an entry: {line[:80]!r}.") from error
