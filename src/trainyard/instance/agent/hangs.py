"""Notices a program that does nothing any more, and shows where its processes are."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trainyard.instance.agent.launching import only_rank
from trainyard.instance.agent.output import Output
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.siblings import Siblings
from trainyard.instance.agent.stacks import Stacks, take_stacks
from trainyard.instance.sandbox.processes import cpu_ticks, descendants
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.hanging import hang_limit_s

_LOOKS_IN_LIMIT = 10
_LONGEST_PAUSE_S = 10.0
_BUSY_SHARE = 0.005  # of a core: less is what a process takes that only waits
_BUSY_TICKS = 2
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SHOWN_PLACES = 8
_MOMENT_S = 0.1  # in which stacks are taken at one look, besides those of the process that is being waited for


class HangWatch:
    """Looks now and then whether a program writes anything or uses the processor.

    An instance may well wait for another that computes. So each leaves a mark when it was active, and when the marks of
    all are old, they have come to a halt. Then the stacks are shown, once until something moves again. Between machines
    the keepers of the instances carry the marks.
    """

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec, *, output: Output, reports: Reports) -> None:
        self._folder = folder
        self._spec = spec
        self._output = output
        self._reports = reports
        self._siblings = Siblings(folder, spec)
        self._limit_s = hang_limit_s(spec)
        self._pause_s = min(self._limit_s / _LOOKS_IN_LIMIT, _LONGEST_PAUSE_S)
        self._root: int | None = None
        self._next = self._looked_at = self._active_at = 0.0
        self._bytes = self._ticks = 0
        self._is_shown = False
        self._taking: Iterator[Stacks] | None = None
        self._taken: list[Stacks] = []

    def begin(self, root: int, now: float) -> None:
        """Watch the processes below `root` from now on."""
        if self._limit_s:
            self._root = root
            self._mark(now)

    def end(self) -> None:
        self._root = self._taking = None

    def look(self, now: float) -> None:
        """See whether anything has moved, at most as often as it matters. It takes less than a second."""
        if self._taking is not None:
            self._take(self._taking)
        if self._root is None or now < self._next:
            return
        ticks, written = _ticks(self._root), self._output.total_bytes
        least = max(_BUSY_TICKS, _BUSY_SHARE * _TICKS_PER_S * (now - self._looked_at))
        is_active = written != self._bytes or abs(ticks - self._ticks) >= least
        self._bytes, self._ticks, self._looked_at, self._next = written, ticks, now, now + self._pause_s
        if is_active:
            self._mark(now)
        elif now - self._active_at >= self._limit_s and not self._is_shown and not self._is_another_active():
            self._is_shown = True
            self._taken = []
            self._take(take_stacks(self._folder, self._root, only_rank=only_rank(self._spec)))

    def _take(self, stacks: Iterator[Stacks]) -> None:
        """Take stacks for a moment, and show them when that were all: whoever calls has stops to carry out."""
        deadline = time.monotonic() + _MOMENT_S
        for each in stacks:
            self._taken.append(each)
            if time.monotonic() > deadline:
                self._taking = stacks
                return
        self._taking = None
        self._show(self._taken)

    def _mark(self, now: float) -> None:
        self._active_at, self._is_shown = now, False
        with suppress(OSError):  # a full disk costs no more than a hang that is noticed late
            self._folder.activity.touch()

    def _is_another_active(self) -> bool:
        """Whether a sibling moved not long ago, or has not even come to its program."""
        at_rest = self._siblings.at_rest()
        others = [self._siblings[host] for host in self._spec.hosts if host not in (self._spec.instance, *at_rest)]
        return any(_age_s(folder.activity) < self._limit_s for folder in others)

    def _show(self, taken: list[Stacks]) -> None:
        self._output.say(f"Nothing was written and no processor used for {self._limit_s:g} s. Where the processes are:")
        for each in taken:
            self._output.say(f"{each.name}:")
            for line in each.lines:
                self._output.say(f"  {line}")
        places = "; ".join(f"{each.name} is at {each.place}" for each in taken[:_SHOWN_PLACES])
        self._reports.note(
            f"{self._spec.instance} seems to hang: for {self._limit_s:g} s nothing was written and no processor used. "
            f"{places or 'It has no processes'}. Its log has all stacks."
        )


def _age_s(file: Path) -> float:
    """A mark that is not there yet will be."""
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return 0.0


def _ticks(root: int) -> int:
    """The processor time of all processes below one, with that of children that have ended."""
    return sum(map(cpu_ticks, (root, *descendants(root))))
