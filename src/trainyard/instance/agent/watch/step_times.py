"""Copies the step times that the program writes to where it cannot change them any more, while it runs."""

import itertools
import os
import re
from contextlib import suppress

from trainyard.formats.profiles.step_times import FACTS_SUFFIX, MAX_BYTES, MAX_FACTS_BYTES, SUFFIX
from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.context import InstanceContext
from trainyard.link.event_protocol import STEP_TIMES

_INTERVAL_S = 2.0
# The hook names files after ranks; programs may write anything, and any number of files.
_NAME = re.compile(r"worker_\d{1,7}(?:-\d{1,7})?(?:\.steps|\.json)")
_MAX_FILES = 1024
_CHUNK_BYTES = 1 << 20


class StepTimesCopy:
    """The copies of one instance. What cannot be read or written is tried again at the next copy."""

    def __init__(self, context: InstanceContext) -> None:
        self._source, self._target = context.folder.ml, context.folder.steps
        self._copied: dict[str, int] = {}
        self._facts: dict[str, tuple[int, int]] = {}
        self._next_at = 0.0

    def poll(self, now: float) -> None:
        if now >= self._next_at:
            self._next_at = now + _INTERVAL_S
            self.copy()

    def copy(self) -> None:
        """Copy what was written since the last copy."""
        with suppress(OSError), ConfinedFolder.open(self._source, STEP_TIMES) as source:
            for name in _names(source):
                if name.endswith(SUFFIX):
                    self._copy_steps(source, name)
                else:
                    self._copy_facts(source, name)

    def _copy_steps(self, source: ConfinedFolder, name: str) -> None:
        while True:
            copied = self._copied.get(name, 0)
            limit = min(_CHUNK_BYTES, MAX_BYTES - copied)
            data = source.read(name, limit_bytes=limit, offset=copied) if limit > 0 else None
            if not data:
                return
            self._target.mkdir(exist_ok=True)
            with (self._target / name).open("ab") as target:
                # A write that failed half-way is repeated in full.
                target.truncate(copied)
                target.write(data)
            self._copied[name] = copied + len(data)

    def _copy_facts(self, source: ConfinedFolder, name: str) -> None:
        status = source.status(name)
        if status is None or status.st_size > MAX_FACTS_BYTES:
            return
        version = status.st_mtime_ns, status.st_size
        data = source.read(name, limit_bytes=MAX_FACTS_BYTES) if self._facts.get(name) != version else None
        if data is None:
            return
        self._target.mkdir(exist_ok=True)
        temporary = self._target / f"{name}.part"
        temporary.write_bytes(data)
        temporary.replace(self._target / name)
        self._facts[name] = version


def _names(folder: ConfinedFolder) -> list[str]:
    with os.scandir(folder.fileno()) as entries:
        names = (entry.name for entry in itertools.islice(entries, 2 * _MAX_FILES))
        return sorted(name for name in names if _NAME.fullmatch(name) and name.endswith((SUFFIX, FACTS_SUFFIX)))
