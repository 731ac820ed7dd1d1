"""Whether a container ran out of memory.

With version 2 of control groups the tools tell that themselves. Of version 1 podman does not: the group is asked here
while it is there, and the kernel tells when something happens in it.
"""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup/memory")  # of version 1
_PAUSE_S = 0.002
_PATIENCE_S = 10.0  # after which a container has no group of its own, such as one without limits


class OutOfMemoryWatch:
    """Watches the container whose id a file will hold, in a thread: what happened can be read only for a moment."""

    def __init__(self, id_file: Path, *, groups: Path = _GROUPS) -> None:
        self.has_run_out = False
        self._id_file = id_file
        self._groups = groups

    def start(self) -> None:
        if self._groups.is_dir():
            threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        group = self._found()
        if group is None:
            return
        with suppress(OSError):  # it has ended already, or only root may ask
            self._watch(group)

    def _found(self) -> Path | None:
        """The group of the container, which is made a moment after it has its id."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            container = self._id_file.read_text().strip() if self._id_file.exists() else ""
            for pattern in ("*", "*/*") if container else ():
                for group in self._groups.glob(f"{pattern}{container}*"):
                    return group
            time.sleep(_PAUSE_S)
        return None

    def _watch(self, group: Path) -> None:
        """The kernel also tells when the group is removed, and then its file cannot be read any more."""
        with open(group / "memory.oom_control", "rb", buffering=0) as control:  # noqa: PTH123 - without a buffer
            events = os.eventfd(0, os.EFD_CLOEXEC)
            (group / "cgroup.event_control").write_text(f"{events} {control.fileno()}")
            while os.eventfd_read(events):
                os.pread(control.fileno(), 1, 0)
                self.has_run_out = True
