"""Detects that a container ran out of memory.

With cgroup v2 the tools report this themselves. With v1 podman does not, so the container's group is watched here: the
kernel sends an event when the group runs out of memory.
"""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

_V1_MEMORY_ROOT = Path("/sys/fs/cgroup/memory")
_PAUSE_S = 0.002
# A container without limits may never get a group.
_FIND_TIMEOUT_S = 10.0


class OomWatch:
    """Watches a container in a thread, since its group disappears with it. The tool writes its id to `id_file`."""

    def __init__(self, id_file: Path, *, groups: Path = _V1_MEMORY_ROOT) -> None:
        self.has_seen_oom = False
        self._id_file = id_file
        self._groups = groups

    def start(self) -> None:
        if self._groups.is_dir():
            threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        group = self._find_group()
        if group is None:
            return
        # It fails if the container has already ended, or if only root may watch the group.
        with suppress(OSError):
            self._watch(group)

    def _find_group(self) -> Path | None:
        """Wait for the group of the container, which appears a moment after the id."""
        deadline = time.monotonic() + _FIND_TIMEOUT_S
        while time.monotonic() < deadline:
            container = self._id_file.read_text().strip() if self._id_file.exists() else ""
            for pattern in ("*", "*/*") if container else ():
                for group in self._groups.glob(f"{pattern}{container}*"):
                    return group
            time.sleep(_PAUSE_S)
        return None

    def _watch(self, group: Path) -> None:
        """Record out-of-memory events. Removing the group is an event too, but then its file can no longer be read."""
        with open(group / "memory.oom_control", "rb", buffering=0) as control:  # noqa: PTH123 - without a buffer
            events = os.eventfd(0, os.EFD_CLOEXEC)
            (group / "cgroup.event_control").write_text(f"{events} {control.fileno()}")
            while os.eventfd_read(events):
                os.pread(control.fileno(), 1, 0)
                self.has_seen_oom = True
