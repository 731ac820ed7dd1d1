"""Where the processes of a program are, taken from outside: their Python stacks, or what the kernel knows of them."""

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

STACKS = "stacks"  # of the folder that launchers report in

_MOST_PROCESSES = 64
_MOST_BYTES = 1 << 20
_SHOWN_S = 0.8  # how long a process may take to show its stacks
_SETTLED_S = 0.05
_FIELD = re.compile(r"^(?P<name>\w+):\s*(?P<value>.*)$", re.MULTILINE)
_FRAME = re.compile(r'File "(?P<file>.+?)", line (?P<line>\d+) in (?P<function>.+)')


@dataclass(frozen=True, slots=True)
class Stacks:
    """One process: what it is called, and the lines that show where it is, the innermost call first."""

    name: str
    lines: Sequence[str]

    @property
    def place(self) -> str:
        """The innermost line of its main thread, in short."""
        for line in reversed(self._of_main_thread()):
            if frame := _FRAME.search(line):
                return f"{frame['file']}, line {frame['line']}, in {frame['function']}"
        return self.lines[0] if self.lines else "nowhere to be seen"

    def _of_main_thread(self) -> list[str]:
        """The first frame of the last thread that is shown, which is the one that ran when the signal came."""
        starts = [number for number, line in enumerate(self.lines) if line.startswith(("Thread ", "Current thread "))]
        return list(self.lines[starts[-1] : starts[-1] + 2]) if starts else []


def take_stacks(folder: InstanceFolder, root: int, *, only_rank: int | None) -> Iterator[Stacks]:
    """Those of all processes below `root`, each of which may let us wait for most of a second.

    `only_rank` is that of its first child where no launcher tells of ranks.
    """
    found = descendants(root)[:_MOST_PROCESSES]
    statuses = {pid: _status(pid) for pid in found}
    ranks = _ranks(folder, statuses) or ({found[0]: only_rank} if found and only_rank is not None else {})
    launchers = {int(statuses[pid].get("PPid", 0)) for pid in ranks} - {root}
    names = {pid: _name(pid, ranks, statuses) for pid in found if pid not in launchers}
    for pid, name in names.items():
        yield Stacks(name, _stacks(folder, pid, statuses[pid]))


def _ranks(folder: InstanceFolder, statuses: Mapping[int, Mapping[str, str]]) -> dict[int, int]:
    """Ranks by their processes; the launcher knows these by their numbers in the sandbox."""
    with ConfinedFolder.open(folder.root) as root:
        text = root.read_text(f"{folder.launch.name}/{RANKS}", limit_bytes=_MOST_BYTES)
    try:
        told = {int(pid): int(rank) for rank, pid in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}
    inner = {pid: int(status.get("NSpid", "0").split()[-1]) for pid, status in statuses.items() if status}
    return {pid: told[number] for pid, number in inner.items() if number in told}


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
            shown = _shown_by_itself(launch, pid)
        if shown:
            return shown
    return (f"{status.get('State', 'gone')}, waiting in {_waits_in(pid)}",)


def _shown_by_itself(launch: ConfinedFolder, pid: int) -> Sequence[str]:
    """What the process adds to the file when it is asked. It knows the signal: others would die of it."""
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
    text = launch.read(STACKS, limit_bytes=_MOST_BYTES, offset=before) or b""
    return [line for line in text.decode(errors="replace").splitlines() if line.strip()]


def _wait_until_written(launch: ConfinedFolder, before: int) -> None:
    deadline, size, since = time.monotonic() + _SHOWN_S, before, time.monotonic()
    while (now := time.monotonic()) < deadline and (size == before or now - since < _SETTLED_S):
        time.sleep(_SETTLED_S / 5)
        if (grown := _size(launch)) != size:
            size, since = grown, time.monotonic()


def _size(launch: ConfinedFolder) -> int:
    found = launch.status(STACKS)
    return found.st_size if found is not None else 0


def _waits_in(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/wchan").read_text() or "the processor"
    return "an unknown place"


def _status(pid: int) -> Mapping[str, str]:
    with contextlib.suppress(OSError):
        return {each["name"]: each["value"] for each in _FIELD.finditer(Path(f"/proc/{pid}/status").read_text())}
    return {}
