"""Divides the time of the training thread among the phases of steps.

A step lasts from the end of the one before, so that steps add up to the time of the training, and what happens between
two iterations (an evaluation, a checkpoint, an export) is part of the next step. The first step begins with its data or
its computation. Phases nest: the time of the inner one does not count for the outer one.

Between two parts of a training, nothing of this is in the caches of the processor, so that each function costs more
than it seems to. Steps are therefore kept as they were counted, until `drain` makes rows of many at once.
"""

import time

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.profiles.step_times import TRAIN, StepRow

_NO_TIME = (0,) * len(StepPhase)
_OTHER = int(StepPhase.OTHER)
_BEGINNINGS = frozenset({StepPhase.DATA_WAIT, StepPhase.FORWARD, StepPhase.BACKWARD})


class StepClock:
    """The clock of one training thread. A step that has ended can be extended until `close_step`.

    `phase` is the phase of this moment, and `since_ns` when it was entered or resumed; 0 before the first step.
    `number` is that of the step that has not been closed yet. Any thread may read them.
    """

    __slots__ = ("_began_ns", "_closed", "_ended", "_epoch_ns", "_outer", "_spent", "number", "phase", "since_ns")

    def __init__(self) -> None:
        # Unix time of the monotonic clock's zero, read once: later changes of the time must not stretch a step.
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()
        self._spent = list(_NO_TIME)
        self._outer: list[int] = []
        self._began_ns = 0
        # A mode, when the step began and ended, and how long each phase took.
        self._ended: tuple[str, int, int, list[int]] | None = None
        self._closed: list[tuple[str, int, int, list[int]]] = []
        self.phase = _OTHER
        self.since_ns = 0
        self.number = 0

    def enter(self, phase: int) -> int:
        """Enter a phase; return when, or 0 if it is not part of a step."""
        now = time.perf_counter_ns()
        since = self.since_ns
        if not since:
            if phase not in _BEGINNINGS:
                return 0
            self._began_ns = since = now
        outer = self.phase
        self._spent[outer] += now - since
        self._outer.append(outer)
        self.phase = phase
        self.since_ns = now
        return now

    def leave(self) -> int:
        """End the phase that was entered last; return when."""
        now = time.perf_counter_ns()
        since = self.since_ns
        if since:
            self._spent[self.phase] += now - since
            self.phase = self._outer.pop() if self._outer else _OTHER
            self.since_ns = now
        return now

    def end_step(self, mode: str = TRAIN) -> None:
        """End all phases and the step now. If the one before was not closed, both become one."""
        since = self.since_ns
        if not since:
            return
        now = time.perf_counter_ns()
        spent, before = self._spent, self._ended
        spent[self.phase] += now - since
        if before is None:
            self._ended = mode, self._began_ns, now, spent
        else:
            # Several optimizers step in turn.
            self._ended = mode, before[1], now, [old + new for old, new in zip(before[3], spent, strict=True)]
        self._spent = list(_NO_TIME)
        # Phases whose end was skipped by an exception, or because the step ends with them.
        if self._outer:
            self._outer.clear()
        self.phase = _OTHER
        self._began_ns = self.since_ns = now

    def close_step(self) -> str:
        """Make the next step another one than that which has ended; return the mode of that, empty if there is none."""
        ended = self._ended
        if ended is None:
            return ""
        self._ended = None
        self._closed.append(ended)
        self.number += 1
        return ended[0]

    def drain(self) -> list[StepRow]:
        """Return the steps that were closed since the last call."""
        closed, self._closed = self._closed, []
        epoch, first = self._epoch_ns, self.number - len(closed)
        return [
            StepRow(number, 1, mode, (began + epoch) // 1000, (ended + epoch) // 1000, spent)
            for number, (mode, began, ended, spent) in enumerate(closed, first)
        ]

    @property
    def has_ended_step(self) -> bool:
        return self._ended is not None
