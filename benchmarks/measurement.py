"""Measurements of other processes, of this machine, and over repeated rounds."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

_PROCESS_CPU_CLOCK = 2  # CPUCLOCK_SCHED of the kernel


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its living descendants, over all threads, with nanosecond resolution."""
    return own_cpu_seconds(pid) + sum(cpu_seconds(child) for child in _children(pid))


def own_cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process alone.

    This reads the process's CPU clock, whose id is what clock_getcpuclockid(3) returns; /proc counts in ticks of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | _PROCESS_CPU_CLOCK)


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def in_turns(measures: Mapping[str, Callable[[], float]], *, rounds: int) -> dict[str, list[float]]:
    """Return the result of each measurement in every round."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for name, measure in measures.items():
            found[name].append(measure())
    return found


@dataclass(frozen=True, slots=True)
class Memory:
    """In MB of 1,000,000 bytes. The proportional set counts each page shared with n processes as 1/n."""

    resident: float
    proportional: float


def memory(pid: int) -> Memory:
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value, *_ = line.split()
        fields[name] = int(value) * 1024 / 1e6
    return Memory(resident=fields["Rss:"], proportional=fields["Pss:"])


def tree_memory(pid: int) -> Memory:
    """Return the memory of a process and its living descendants."""
    own, below = memory(pid), [tree_memory(child) for child in _children(pid)]
    return Memory(
        resident=own.resident + sum(each.resident for each in below),
        proportional=own.proportional + sum(each.proportional for each in below),
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """The median and the extremes of repeated measurements."""

    median: float
    lowest: float
    highest: float
    count: int

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.lowest:.3g} to {self.highest:.3g})"


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values), len(values))


def write_results(name: str, results: Mapping[str, Any]) -> Path:
    """Write the figures together with a description of this machine."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": asdict(describe_machine()), **results}
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


@dataclass(frozen=True, slots=True)
class Machine:
    processor: str
    cores: int
    memory_gb: float
    system: str
    python: str
    load_before: float


def describe_machine() -> Machine:
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 0,
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        load_before=os.getloadavg()[0],
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
