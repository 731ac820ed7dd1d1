"""The source about the job alone: what its program uses of the cores and the memory that it may use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.instance.agent.watch.hardware.control_groups import ControlGroups
from trainyard.instance.agent.watch.hardware.kernel_files import KernelFile, Rates
from trainyard.instance.agent.watch.hardware.processes import ProcessTree

NAN = float("nan")

# How often processes are looked for, and how often what is slow to read and changes slowly is read.
_PROCESSES_S, _SLOW_S = 2.0, 1.0
_M = HardwareMetric
# The files of control groups that are read, of both versions, by their controller.
_COUNTED = (
    *(("cpu", "cpu.stat"), ("cpuacct", "cpuacct.usage"), ("io", "io.stat"), ("memory", "memory.stat")),
    *(("memory", "memory.current"), ("memory", "memory.usage_in_bytes")),
)
_USAGE = "usage"


@dataclass(frozen=True, slots=True)
class JobCapacity:
    """What the job may use: the limits of its control groups, or all of the machine's."""

    cores: float
    memory_bytes: float

    @classmethod
    def of(cls, root: Path, pid: int, *, cores: int) -> "JobCapacity":
        groups = ControlGroups.of(root, pid)
        total = _memory_bytes(root)
        limit = groups.memory_limit()
        return cls(min(groups.core_limit() or cores, cores), total if limit is None else min(limit, total))


class JobSource:
    """What the processes of a job use, counted by its control groups or, where it has none, over its processes."""

    interval_s = 0.0

    def __init__(self, root: Path, pid: int, capacity: JobCapacity, *, cores: int) -> None:
        self._capacity = capacity
        self._machine_cores = cores
        groups = ControlGroups.of(root, pid).without(ControlGroups.of(root, "self"))
        self._group = _GroupFiles(groups)
        own = groups.by_controller
        members = own.get("") or next(iter(own.values()), None)
        self._tree = ProcessTree(root, pid, members=members.folder / "cgroup.procs" if members else None)
        self._cpu, self._traffic, self._throttling = Rates(1), Rates(2), Rates(2)
        self._owed_s = 0.0
        self._at_s = 0.0
        self._next_processes_s = self._next_slow_s = 0.0
        self._slow: Sequence[float] = (NAN, NAN, NAN, NAN)
        self._counts: Sequence[float] = (NAN, NAN)
        self.series: Sequence[HardwareSeries] = [
            HardwareSeries(metric)
            for metric in (
                *(_M.JOB_CPU_PERCENT, _M.JOB_MEMORY_BYTES, _M.JOB_MEMORY_PERCENT),
                *(_M.JOB_READ_BYTES_S, _M.JOB_WRITE_BYTES_S, _M.JOB_PROCESSES, _M.JOB_THREADS),
                *([_M.JOB_THROTTLED_PERCENT] if self._group.counts_throttling else []),
            )
        ]

    def read(self, now_s: float) -> Sequence[float]:
        is_refresh = now_s >= self._next_processes_s
        if is_refresh:
            self._next_processes_s = now_s + _PROCESSES_S
            self._tree.refresh()
        cpu_s = self._group.cpu_s()
        if cpu_s is None or is_refresh:
            use = self._tree.use()
            self._counts = (float(use.processes), float(use.threads))
            cpu_s = use.cpu_s if cpu_s is None else cpu_s
        if now_s >= self._next_slow_s:
            self._next_slow_s = now_s + _SLOW_S
            self._slow = self._read_slow(now_s)
        return self._cpu_percent(cpu_s, now_s), *self._slow, *self._counts, *self._throttled_percent(now_s)

    def close(self) -> None:
        self._tree.close()
        self._group.close()

    def _cpu_percent(self, cpu_s: float, now_s: float) -> float:
        """Return the percentage of the cores that the job may use.

        A process that was found only now brings the time that it used before, which may be more than the machine has
        had since the sample before. The rest is then for the next samples.
        """
        (rate,) = self._cpu.update((cpu_s,), now_s)
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        if rate != rate:
            return rate
        used_s = rate * elapsed_s + self._owed_s
        shown_s = min(used_s, self._machine_cores * elapsed_s)
        self._owed_s = used_s - shown_s
        return 100.0 * shown_s / elapsed_s / self._capacity.cores

    def _read_slow(self, now_s: float) -> Sequence[float]:
        memory = self._group.memory_bytes()
        memory = self._tree.memory_bytes() if memory is None else memory
        traffic = self._group.traffic()
        rates = self._traffic.update(self._tree.traffic() if traffic is None else traffic, now_s)
        return memory, 100.0 * memory / self._capacity.memory_bytes, *rates

    def _throttled_percent(self, now_s: float) -> Sequence[float]:
        if not self._group.counts_throttling:
            return ()
        periods, throttled = self._throttling.update(self._group.throttling(), now_s)
        if periods != periods:
            return (NAN,)
        return (100.0 * throttled / periods if periods else 0.0,)


class _GroupFiles:
    """The files of the control groups of a job; of what no group counts, nothing is known here."""

    def __init__(self, groups: ControlGroups) -> None:
        self._files: dict[str, KernelFile] = {}
        for controller, name in _COUNTED:
            group = groups.group_with(controller, name)
            if group is not None:
                self._files[name] = KernelFile(group.folder / name)
        # Version 2 counts the time even where version 1 limits it.
        if "" in groups.by_controller:
            self._files[_USAGE] = KernelFile(groups.by_controller[""].folder / "cpu.stat")
        self.counts_throttling = "cpu.stat" in self._files and groups.core_limit() is not None

    def cpu_s(self) -> float | None:
        used = self._numbers(_USAGE).get(b"usage_usec")
        if used is not None:
            return used / 1e6
        data = self._files["cpuacct.usage"].read() if "cpuacct.usage" in self._files else b""
        return int(data) / 1e9 if data else None

    def memory_bytes(self) -> float | None:
        """Return the memory without file pages that the kernel frees first when memory is short."""
        for name in ("memory.current", "memory.usage_in_bytes"):
            data = self._files[name].read() if name in self._files else b""
            if data:
                stat = self._numbers("memory.stat")
                cached = stat.get(b"total_inactive_file", stat.get(b"inactive_file", 0))
                return float(max(0, int(data) - cached))
        return None

    def traffic(self) -> Sequence[float] | None:
        if "io.stat" not in self._files:
            return None
        read = written = 0
        for word in self._files["io.stat"].read().split():
            name, _, value = word.partition(b"=")
            read += int(value) if name == b"rbytes" else 0
            written += int(value) if name == b"wbytes" else 0
        return read, written

    def throttling(self) -> Sequence[float]:
        """Return how many periods of its limit the job ran in, and in how many it was stopped."""
        numbers = self._numbers("cpu.stat")
        return numbers.get(b"nr_periods", 0), numbers.get(b"nr_throttled", 0)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _numbers(self, name: str) -> Mapping[bytes, int]:
        if name not in self._files:
            return {}
        words = self._files[name].read().split()
        return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def _memory_bytes(root: Path) -> float:
    """Return the size of the machine's memory."""
    try:
        return 1024.0 * int((root / "proc/meminfo").read_text().split(None, 2)[1])
    except (OSError, IndexError):
        return NAN
