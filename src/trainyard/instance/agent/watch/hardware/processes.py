"""What the processes of a program use, from /proc. Files stay open, and the set of processes is refreshed at times."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.instance.agent.watch.hardware.kernel_files import KernelFile

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Files stay open for this many processes; those of the others are opened for each read.
_MAX_KEPT = 64
# The oldest processes of a larger tree are counted, the others are not.
_MAX_PROCESSES = 1024


@dataclass(frozen=True, slots=True)
class TreeUse:
    """What the processes have used in total, with children that have ended, and what they are now."""

    cpu_s: float
    processes: int
    threads: int


class _Process:
    """The files of one process. They belong to it alone: once it has ended, they cannot be read any more."""

    def __init__(self, folder: Path, *, stays_open: bool) -> None:
        self.stat, self.statm, self.io = (KernelFile(folder / name) for name in ("stat", "statm", "io"))
        self._stays_open = stays_open

    def read(self, file: KernelFile) -> bytes:
        data = file.read()
        if not self._stays_open:
            file.close()
        return data

    def close(self) -> None:
        for file in (self.stat, self.statm, self.io):
            file.close()


class ProcessTree:
    """The processes below and including one, or those of a control group if there is one with only them.

    CPU time and traffic of a child that has ended are those of its parent from then on, so the sums only grow.
    """

    def __init__(self, root: Path, pid: int, *, members: Path | None = None) -> None:
        self._proc = root / "proc"
        self._pid = pid
        self._members = KernelFile(members) if members is not None else None
        self._processes: dict[int, _Process] = {}

    def refresh(self) -> None:
        """Find the processes anew."""
        found = self._member_pids() or self._descendants()
        for pid in self._processes.keys() - set(found):
            self._processes.pop(pid).close()
        for pid in found[:_MAX_PROCESSES]:
            if pid not in self._processes:
                stays_open = len(self._processes) < _MAX_KEPT
                self._processes[pid] = _Process(self._proc / str(pid), stays_open=stays_open)

    def use(self) -> TreeUse:
        """Return what the processes have used so far."""
        ticks = threads = 0
        for pid, process in list(self._processes.items()):
            data = process.read(process.stat)
            if not data:
                self._processes.pop(pid).close()
                continue
            # The name of a process may have spaces and parentheses.
            fields = data[data.rindex(b")") + 2 :].split(None, 18)
            ticks += sum(map(int, fields[11:15]))
            threads += int(fields[17])
        return TreeUse(ticks / _TICKS_PER_S, len(self._processes), threads)

    def memory_bytes(self) -> float:
        """Return the resident memory. What processes share through files counts once, as much as the largest shares."""
        private = shared = 0
        for process in self._processes.values():
            fields = process.read(process.statm).split(None, 3)
            if len(fields) > 2:
                private += int(fields[1]) - int(fields[2])
                shared = max(shared, int(fields[2]))
        return float((private + shared) * _PAGE_BYTES)

    def traffic(self) -> Sequence[float] | None:
        """Return the bytes read from and written to disks so far; None if the kernel does not show them."""
        read = written = 0
        is_shown = False
        for process in self._processes.values():
            fields = process.read(process.io).split()
            if len(fields) > 11:
                is_shown = True
                read += int(fields[9])
                written += int(fields[11])
        return (read, written) if is_shown else None

    def close(self) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        if self._members is not None:
            self._members.close()

    def _member_pids(self) -> list[int]:
        return sorted(map(int, self._members.read_lines().split())) if self._members is not None else []

    def _descendants(self) -> list[int]:
        """Return the processes of the tree, parents first. The kernel lists children per thread that made them."""
        found: list[int] = []
        pending = [self._pid]
        while pending and len(found) < _MAX_PROCESSES:
            pid = pending.pop()
            found.append(pid)
            tasks = f"{self._proc}/{pid}/task"
            with suppress(OSError):
                for thread in os.listdir(tasks):  # noqa: PTH208 - hundreds of them, and only the names count
                    pending += _children(f"{tasks}/{thread}/children")
        return found


def _children(file: str) -> list[int]:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return [int(pid) for pid in os.read(descriptor, 1 << 16).split()]
    except OSError:
        return []
    finally:
        os.close(descriptor)
