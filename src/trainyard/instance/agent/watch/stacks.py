"""Takes the stacks of a program's processes from outside: their Python stacks, or what the kernel knows about them."""

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.launch.report import RANKS
from trainyard.instance.launch.stacks import SIGNAL
from trainyard.instance.sandbox.processes import descendants
from trainyard.link.folders import InstanceFolder

# The file in the launch folder that processes append their stacks to.
STACKS = "stacks"

_MAX_PROCESSES = 64
_MAX_BYTES = 1 << 20
# How long a process may take to write its stacks, and how long the file must not grow before they count as complete.
_WRITE_TIMEOUT_S = 0.8
_QUIET_S = 0.05
_FIELD = re.compile(r"^(?P<name>\w+):\s*(?P<value>.*)$", re.MULTILINE)
_FRAME = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+) in (?P<function>.+)')


@dataclass(frozen=True, slots=True)
class ProcessStacks:
    """The name of a process, and its stacks as lines, innermost call first."""

    name: str
    lines: Sequence[str]

    @property
    def place(self) -> str:
        """The innermost line of its main thread, in short."""
        for line in reversed(self._main_thread_lines()):
            if frame := _FRAME.search(line):
                return f"{frame['file']}, line {frame['line']}, in {frame['function']}"
        return self.lines[0] if self.lines else "an unknown place"

    def _main_thread_lines(self) -> list[str]:
        """The header and first frame of the last thread, which is the one that received the signal."""
        starts = [number for number, line in enumerate(self.lines) if line.startswith(("Thread ", "Current thread "))]
        return list(self.lines[starts[-1] : starts[-1] + 2]) if starts else []


def take_stacks(folder: InstanceFolder, root: int, *, only_rank: int | None) -> Iterator[ProcessStacks]:
    """Yield the stacks of all processes below `root`. Each may take most of a second.

    `only_rank` is the rank of the first child when no launcher has reported ranks.
    """
    pids = descendants(root)[:_MAX_PROCESSES]
    statuses = {pid: _status(pid) for pid in pids}
    ranks = _ranks(folder, statuses) or ({pids[0]: only_rank} if pids and only_rank is not None else {})
    launchers = {int(statuses[pid].get("PPid", 0)) for pid in ranks} - {root}
    names = {pid: _name(pid, ranks, statuses) for pid in pids if pid not in launchers}
    for pid, name in names.items():
        yield ProcessStacks(name, _stacks(folder, pid, statuses[pid]))


def _ranks(folder: InstanceFolder, statuses: Mapping[int, Mapping[str, str]]) -> dict[int, int]:
    """The ranks by process id. The launcher reports the ids that the processes have in the sandbox."""
    with ConfinedFolder.open(folder.root) as root:
        text = root.read_text(f"{folder.launch.name}/{RANKS}", limit_bytes=_MAX_BYTES)
    try:
        reported = {int(pid): int(rank) for rank, pid in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}
    inner = {pid: int(status.get("NSpid", "0").split()[-1]) for pid, status in statuses.items() if status}
    return {pid: reported[number] for pid, number in inner.items() if number in reported}


def _name(pid: int, ranks: Mapping[int, int], statuses: Mapping[int, Mapping[str, str]]) -> str:
    if pid in ranks:
        return f"rank {ranks[pid]}"
    command = f"{statuses[pid].get('Name', 'process')} ({pid})"
    above = pid
    while above in statuses:
        above = int(statuses[above].get("PPid", 0))
        if above in ranks:
            return f"{command} of rank {ranks[above]}"
    return command


def _stacks(folder: InstanceFolder, pid: int, status: Mapping[str, str]) -> Sequence[str]:
    if int(status.get("SigCgt", "0"), 16) >> (SIGNAL - 1) & 1:
        with ConfinedFolder.open(folder.launch) as launch:
            lines = _request_stacks(launch, pid)
        if lines:
            return lines
    return (f"{status.get('State', 'gone')}, waiting in {_kernel_function(pid)}",)


def _request_stacks(launch: ConfinedFolder, pid: int) -> Sequence[str]:
    """Send a process the signal to append its stacks to the file, and return them.

    The process must have a handler: the signal kills others.
    """
    before = _size(launch)
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return ()
    try:
        signal.pidfd_send_signal(pidfd, SIGNAL)
    except OSError:
        return ()
    finally:
        os.close(pidfd)
    _wait_until_written(launch, before)
    text = launch.read(STACKS, limit_bytes=_MAX_BYTES, offset=before) or b""
    return [line for line in text.decode(errors="replace").splitlines() if line.strip()]


def _wait_until_written(launch: ConfinedFolder, before: int) -> None:
    deadline, size, changed_at = time.monotonic() + _WRITE_TIMEOUT_S, before, time.monotonic()
    while (now := time.monotonic()) < deadline and (size == before or now - changed_at < _QUIET_S):
        time.sleep(_QUIET_S / 5)
        if (new_size := _size(launch)) != size:
            size, changed_at = new_size, time.monotonic()


def _size(launch: ConfinedFolder) -> int:
    status = launch.status(STACKS)
    return status.st_size if status is not None else 0


def _kernel_function(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/wchan").read_text() or "the processor"
    return "an unknown place"


def _status(pid: int) -> Mapping[str, str]:
    with contextlib.suppress(OSError):
        return {each["name"]: each["value"] for each in _FIELD.finditer(Path(f"/proc/{pid}/status").read_text())}
    return {}
