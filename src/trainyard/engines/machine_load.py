"""How busy this machine is, with jobs or anything else, according to the kernel."""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

# The kernel counts in hundredths of a second, too coarse for shorter intervals.
_MIN_INTERVAL_S = 0.2
# The columns "idle" and "iowait" of /proc/stat.
_IDLE_COLUMNS = (3, 4)


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """How many cores are busy, and how much memory is in use."""

    cpus: float
    memory_bytes: int


class LoadMeter:
    """Measures the load between calls. Safe to share between threads."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._lock = threading.Lock()
        self._at_s, self._busy_s = time.monotonic(), self._busy_seconds()
        self._cpus = 0.0

    def measure(self) -> MachineLoad:
        """Return the memory in use now, and the cores busy on average since the last measurement."""
        with self._lock:
            at_s = time.monotonic()
            if at_s - self._at_s >= _MIN_INTERVAL_S:
                busy_s = self._busy_seconds()
                self._cpus = max(0.0, (busy_s - self._busy_s) / (at_s - self._at_s))
                self._at_s, self._busy_s = at_s, busy_s
            return MachineLoad(round(self._cpus, 2), self._used_memory())

    def _busy_seconds(self) -> float:
        """CPU seconds that all cores have worked since boot."""
        ticks = [int(field) for field in (self._proc / "stat").read_text().partition("\n")[0].split()[1:9]]
        return sum(count for column, count in enumerate(ticks) if column not in _IDLE_COLUMNS) / os.sysconf(
            "SC_CLK_TCK"
        )

    def _used_memory(self) -> int:
        lines = (self._proc / "meminfo").read_text().splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return (kib["MemTotal"] - kib["MemAvailable"]) * 1024
