"""Sources of the whole machine: cores, memory, disks, network and pressure, from /proc and /sys."""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.instance.agent.watch.hardware.contract import HardwareSource
from trainyard.instance.agent.watch.hardware.kernel_files import KernelFile, Rates

NAN = float("nan")

_TOTAL = "total"
_SECTOR_BYTES = 512
# How often devices are looked for, and the free space of a disk is asked for; on a remote file system that may be slow.
_DEVICES_S, _SPACE_S = 30.0, 5.0
# Disks that are made of other disks, of files or of memory.
_VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
# Interfaces whose traffic stays on the machine, or passes another interface too.
_VIRTUAL_INTERFACES = ("lo", "veth", "docker", "br-", "cni", "virbr", "ifb", "podman", "dummy")
_M = HardwareMetric
_PRESSURE = {b"some": _M.PRESSURE_SOME_PERCENT, b"full": _M.PRESSURE_FULL_PERCENT}
# As the kernel orders them. Of a whole machine, it is never true that all programs wait for a core.
_PRESSURES = {"cpu": (b"some",), "io": (b"some", b"full"), "memory": (b"some", b"full")}


class CpuSource:
    """How busy the cores are, and how much of their time they waited for disks.

    `cores` are those that the instance may use; "total" is their mean.
    """

    interval_s = 0.0

    def __init__(self, root: Path, cores: Collection[int]) -> None:
        self._file = KernelFile(root / "proc/stat")
        self._allowed = {b"cpu%d" % core for core in cores}
        self._names: tuple[bytes, ...] = ()
        self._ticks: Sequence[tuple[int, int, int]] = ()
        self._values: list[float] = []
        self.series: Sequence[HardwareSeries] = ()

    def read(self, _now_s: float) -> Sequence[float]:
        names, ticks = self._read_ticks()
        if names != self._names:
            self._begin(names)
            self._ticks = ticks
            return self._values
        busy, waiting = self._values[1 : 1 + len(names)], self._values[2 + len(names) :]
        for number, (now, before) in enumerate(zip(ticks, self._ticks, strict=True)):
            # Within one tick of the kernel's clock, the percentages stay what they were.
            if elapsed := now[0] - before[0]:
                busy[number] = 100.0 * min(max(now[1] - before[1], 0), elapsed) / elapsed
                waiting[number] = 100.0 * min(max(now[2] - before[2], 0), elapsed) / elapsed
        self._ticks = ticks
        if names:
            self._values = [sum(busy) / len(names), *busy, sum(waiting) / len(names), *waiting]
        return self._values

    def close(self) -> None:
        self._file.close()

    def _begin(self, names: tuple[bytes, ...]) -> None:
        self._names = names
        devices = [_TOTAL, *(f"core{name[3:].decode()}" for name in names)] if names else []
        self.series = [
            HardwareSeries(metric, each) for metric in (_M.CPU_PERCENT, _M.IO_WAIT_PERCENT) for each in devices
        ]
        self._values = [NAN] * len(self.series)

    def _read_ticks(self) -> tuple[tuple[bytes, ...], Sequence[tuple[int, int, int]]]:
        """Return the names of the cores and, for each, the ticks in total, of work, and of waiting for disks."""
        names, ticks = [], []
        # The first lines are about all cores together, and then about each.
        for line in self._file.read().partition(b"\nintr")[0].split(b"\n")[1:]:
            if not line.startswith(b"cpu"):
                break
            name, *fields = line.split(None, 9)
            if name in self._allowed:
                user, nice, system, idle, waiting, interrupts, softirqs, stolen = map(int, fields[:8])
                busy = user + nice + system + interrupts + softirqs + stolen
                names.append(name)
                ticks.append((busy + idle + waiting, busy, waiting))
        return tuple(names), ticks


class MemorySource:
    """The memory that is not available for programs, without caches."""

    interval_s = 0.0
    series = (HardwareSeries(_M.MEMORY_BYTES), HardwareSeries(_M.MEMORY_PERCENT))

    def __init__(self, root: Path) -> None:
        self._file = KernelFile(root / "proc/meminfo")

    def read(self, _now_s: float) -> Sequence[float]:
        # MemTotal, MemFree and MemAvailable are the first lines, each with its unit.
        fields = self._file.read().split(None, 8)
        if len(fields) < 8 or fields[6] != b"MemAvailable:":
            return NAN, NAN
        total, available = int(fields[1]), int(fields[7])
        used = total - available
        return 1024.0 * used, 100.0 * used / max(1, total)

    def close(self) -> None:
        self._file.close()


class DiskSource:
    """The traffic of all disks together, and how full the disk of `folder` is."""

    interval_s = 0.0
    series = (
        HardwareSeries(_M.DISK_PERCENT),
        HardwareSeries(_M.DISK_READ_BYTES_S),
        HardwareSeries(_M.DISK_WRITE_BYTES_S),
    )

    def __init__(self, root: Path, folder: Path) -> None:
        self._block = root / "sys/block"
        self._folder = folder
        self._files: dict[str, KernelFile] = {}
        self._rates = Rates(2)
        self._used = NAN
        self._next_devices_s = self._next_space_s = 0.0

    def read(self, now_s: float) -> Sequence[float]:
        if now_s >= self._next_devices_s:
            self._next_devices_s = now_s + _DEVICES_S
            self._find_disks()
        if now_s >= self._next_space_s:
            self._next_space_s = now_s + _SPACE_S
            self._used = _used_percent(self._folder)
        return self._used, *self._rates.update(self._read_counters(), now_s)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _find_disks(self) -> None:
        names = {name for name in _names(self._block) if not name.startswith(_VIRTUAL_DISKS)}
        if names != self._files.keys():
            self.close()
            self._files = {name: KernelFile(self._block / name / "stat") for name in sorted(names)}
            self._rates = Rates(2)

    def _read_counters(self) -> Sequence[float] | None:
        read = written = 0
        for file in self._files.values():
            fields = file.read().split(None, 7)
            if len(fields) > 6:
                read += int(fields[2])
                written += int(fields[6])
        return (read * _SECTOR_BYTES, written * _SECTOR_BYTES) if self._files else None


class NetworkSource:
    """The traffic of the machine with others: what passes its network cards or, in a container, its interfaces."""

    interval_s = 0.0
    series = (HardwareSeries(_M.NETWORK_RECEIVED_BYTES_S), HardwareSeries(_M.NETWORK_SENT_BYTES_S))

    def __init__(self, root: Path) -> None:
        self._file = KernelFile(root / "proc/net/dev")
        self._devices = root / "sys/class/net"
        self._names: set[bytes] = set()
        self._rates = Rates(2)
        self._next_devices_s = 0.0

    def read(self, now_s: float) -> Sequence[float]:
        if now_s >= self._next_devices_s:
            self._next_devices_s = now_s + _DEVICES_S
            self._find_interfaces()
        received = sent = 0
        for line in self._file.read_lines().split(b"\n"):
            name, colon, counters = line.partition(b":")
            if colon and name.strip() in self._names:
                fields = counters.split(None, 9)
                received += int(fields[0])
                sent += int(fields[8])
        return self._rates.update((received, sent) if self._names else None, now_s)

    def close(self) -> None:
        self._file.close()

    def _find_interfaces(self) -> None:
        names = _names(self._devices)
        cards = [name for name in names if (self._devices / name / "device").exists()]
        found = {
            name.encode() for name in cards or (name for name in names if not name.startswith(_VIRTUAL_INTERFACES))
        }
        if found != self._names:
            self._names, self._rates = found, Rates(2)


class PressureSource:
    """The share of time in which some, or all, programs of the machine waited for cores, disks or memory."""

    interval_s = 0.0

    def __init__(self, root: Path) -> None:
        files = {name: root / "proc/pressure" / name for name in _PRESSURES}
        self._files = {name: KernelFile(path) for name, path in files.items() if _is_pressure_file(path)}
        self.series = [HardwareSeries(_PRESSURE[kind], name) for name in self._files for kind in _PRESSURES[name]]
        self._rates = Rates(len(self.series))

    def read(self, now_s: float) -> Sequence[float]:
        totals = [
            int(total)
            for name, file in self._files.items()
            for total in _pressure_totals(file.read())[: len(_PRESSURES[name])]
        ]
        rates = self._rates.update(totals if len(totals) == len(self.series) else None, now_s)
        # The totals are microseconds.
        return [min(100.0, 100.0 * rate / 1e6) if rate == rate else rate for rate in rates]

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def machine_sources(root: Path, cores: Collection[int], folder: Path) -> list[HardwareSource]:
    """Return the sources of the whole machine. `cores` and `folder` are those of the instance."""
    return [
        CpuSource(root, cores),
        MemorySource(root),
        DiskSource(root, folder),
        NetworkSource(root),
        PressureSource(root),
    ]


def _pressure_totals(data: bytes) -> list[bytes]:
    """Return the totals at the ends of the lines: that of "some", and that of "full"."""
    return [part.partition(b"\n")[0] for part in data.split(b"total=")[1:]]


def _is_pressure_file(path: Path) -> bool:
    """Whether the kernel measures the pressure; it may refuse the read although the file is there."""
    with suppress(OSError):
        return path.read_bytes().startswith(b"some")
    return False


def _used_percent(folder: Path) -> float:
    """Return how full a disk is for ordinary users, as df does."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return NAN
    used = disk.f_blocks - disk.f_bfree
    return 100.0 * used / max(1, used + disk.f_bavail)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - polled, and only the names count
    except OSError:
        return []
