"""Detects a program that hangs, and shows the stacks of its processes."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.program.launch import only_rank
from trainyard.instance.agent.siblings import Siblings
from trainyard.instance.agent.watch.stacks import ProcessStacks, take_stacks
from trainyard.instance.sandbox.processes import cpu_ticks, descendants
from trainyard.link.spec_queries import hang_limit_s

_CHECKS_IN_LIMIT = 10
_MAX_INTERVAL_S = 10.0
# The share of a core above which a process is active; one that only waits uses less.
_BUSY_SHARE = 0.005
_BUSY_TICKS = 2
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SHOWN_LOCATIONS = 8
# How long one poll takes stacks, plus the time that the last process needs.
_STACKS_S = 0.1


class HangDetector:
    """Checks now and then whether a program writes output or uses the processor.

    An instance may be waiting for another one that computes. So each touches a file when it is active, and only when
    the files of all are old does the job hang. Then the stacks are shown, once until there is activity again. Between
    machines, the cluster engine copies the times of these files.
    """

    def __init__(self, context: InstanceContext) -> None:
        self._folder = context.folder
        self._spec = context.spec
        self._output = context.output
        self._reports = context.reports
        self._siblings = Siblings(context.folder, context.spec)
        self._limit_s = hang_limit_s(context.spec)
        self._interval_s = min(self._limit_s / _CHECKS_IN_LIMIT, _MAX_INTERVAL_S)
        self._root: int | None = None
        self._next_check = self._checked_at = self._active_at = 0.0
        self._written_bytes = self._ticks = 0
        self._is_shown = False
        self._pending_stacks: Iterator[ProcessStacks] | None = None
        self._stacks: list[ProcessStacks] = []

    def start(self, root: int, now: float) -> None:
        """Watch the processes below `root` from now on."""
        if self._limit_s:
            self._root = root
            self._mark_activity(now)

    def stop(self) -> None:
        self._root = self._pending_stacks = None

    def poll(self, now: float) -> None:
        """Check for activity, at most once per interval. Takes less than a second."""
        if self._pending_stacks is not None:
            self._collect_stacks(self._pending_stacks)
        if self._root is None or now < self._next_check:
            return
        ticks, written = _ticks(self._root), self._output.total_bytes
        busy_ticks = max(_BUSY_TICKS, _BUSY_SHARE * _TICKS_PER_S * (now - self._checked_at))
        is_active = written != self._written_bytes or abs(ticks - self._ticks) >= busy_ticks
        self._written_bytes, self._ticks = written, ticks
        self._checked_at, self._next_check = now, now + self._interval_s
        if is_active:
            self._mark_activity(now)
        elif now - self._active_at >= self._limit_s and not self._is_shown and not self._is_sibling_active():
            self._is_shown = True
            self._stacks = []
            self._collect_stacks(take_stacks(self._folder, self._root, only_rank=only_rank(self._spec)))

    def _collect_stacks(self, stacks: Iterator[ProcessStacks]) -> None:
        """Take stacks for a moment only, because the caller must also react to commands. Show them when complete."""
        deadline = time.monotonic() + _STACKS_S
        for each in stacks:
            self._stacks.append(each)
            if time.monotonic() > deadline:
                self._pending_stacks = stacks
                return
        self._pending_stacks = None
        self._show(self._stacks)

    def _mark_activity(self, now: float) -> None:
        self._active_at, self._is_shown = now, False
        # On a full disk a hang is noticed late, nothing worse.
        with suppress(OSError):
            self._folder.activity.touch()

    def _is_sibling_active(self) -> bool:
        """Whether a sibling was active recently, or has not started its program yet."""
        ended = self._siblings.exited_hosts()
        others = [self._siblings[host] for host in self._spec.hosts if host not in (self._spec.instance, *ended)]
        return any(_age_s(folder.activity) < self._limit_s for folder in others)

    def _show(self, stacks: list[ProcessStacks]) -> None:
        self._output.add_line(
            f"Nothing was written and no processor used for {self._limit_s:g} s. Where the processes are:"
        )
        for each in stacks:
            self._output.add_line(f"{each.name}:")
            for line in each.lines:
                self._output.add_line(f"  {line}")
        places = "; ".join(f"{each.name} is at {each.place}" for each in stacks[:_SHOWN_LOCATIONS])
        self._reports.note(
            f"{self._spec.instance} seems to hang: for {self._limit_s:g} s nothing was written and no processor used. "
            f"{places or 'It has no processes'}. Its log has all stacks."
        )


def _age_s(file: Path) -> float:
    """The age of a file; 0 for one that does not exist yet."""
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return 0.0


def _ticks(root: int) -> int:
    """The processor time of all processes below one, including children that have ended."""
    return sum(map(cpu_ticks, (root, *descendants(root))))
