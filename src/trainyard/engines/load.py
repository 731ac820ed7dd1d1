"""How busy this machine is, with jobs or anything else, as the kernel counts it."""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_SHORTEST_S = 0.2  # the kernel counts in hundredths of a second, too coarse for less than this
_IDLE = (3, 4)  # the columns of /proc/stat that are no work: idle, and idle while a disk is waited for


@dataclass(frozen=True, slots=True)
class Load:
    """How many cores are busy, and how much memory is taken."""

    cpus: float
    memory_bytes: int


class MachineLoad:
    """Measures between one question and the next. Safe to share between threads."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._lock = threading.Lock()
        self._at_s, self._busy_s = time.monotonic(), self._busy()
        self._cpus = 0.0

    def now(self) -> Load:
        """The use of memory at this moment, and that of cores since the last question but one."""
        with self._lock:
            at_s = time.monotonic()
            if at_s - self._at_s >= _SHORTEST_S:
                busy_s = self._busy()
                self._cpus = max(0.0, (busy_s - self._busy_s) / (at_s - self._at_s))
                self._at_s, self._busy_s = at_s, busy_s
            return Load(round(self._cpus, 2), self._memory())

    def _busy(self) -> float:
        """Seconds of work of all cores since the machine was started."""
        ticks = [int(field) for field in (self._proc / "stat").read_text().partition("\n")[0].split()[1:9]]
        return sum(count for column, count in enumerate(ticks) if column not in _IDLE) / os.sysconf("SC_CLK_TCK")

    def _memory(self) -> int:
        lines = (self._proc / "meminfo").read_text().splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return (kib["MemTotal"] - kib["MemAvailable"]) * 1024
