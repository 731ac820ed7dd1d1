"""Divides the time of the training thread among the phases of steps.

A step lasts from the end of the one before, so that steps add up to the time of the training, and what happens between
two iterations (an evaluation, a checkpoint, an export) is part of the next step. The first step begins with its data or
its computation. Phases nest: the time of the inner one does not count for the outer one.

Between two parts of a training, nothing of this is in the caches of the processor, so that each instruction costs a
multiple of what it costs in a loop. The training thread therefore only marks what begins or ends, and when. What the
marks mean is worked out for many steps at once.
"""

import operator
import time
from collections.abc import Callable, Sequence
from itertools import chain

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.profiles.step_times import MODES, TRAIN, StepRow

# What is marked besides the phases that are entered: that one is left, that a step is closed, or that it ends.
LEAVE = len(StepPhase)
_CLOSE = LEAVE + 1
_ENDS = {mode: number for number, mode in enumerate(MODES, _CLOSE + 1)}
_ENDED_MODES = {number: mode for mode, number in _ENDS.items()}
_NO_TIME = [0] * len(StepPhase)
_OTHER = int(StepPhase.OTHER)
_BEGINNINGS = frozenset({StepPhase.DATA_WAIT, StepPhase.FORWARD, StepPhase.BACKWARD})
# So many are counted although no step ends: a program that never ends one must not fill the memory.
MAX_MARKS = 8192

# Receives a phase that has ended: which, when it began and ended in Unix nanoseconds, and the number of its step.
PhaseListener = Callable[[int, int, int, int], None]


class StepClock:
    """The clock of one training thread. A step that has ended can be extended until `close_step`.

    `marks` has in turn what happened and when, by `time.perf_counter_ns`. What is called most often adds to it by
    itself, as `enter` and `leave` do: a phase with which a step may begin, or LEAVE. Both are added at once, because a
    signal may end the program at any moment.

    `ended_mode` is the mode of the step that has ended and is not closed, empty if there is none, and `ended_ns` when a
    step last ended. `number` is that of the step that is not closed yet. Any thread may read it, and `phase`.
    """

    __slots__ = ("_counted", "ended_mode", "ended_ns", "marks", "number")

    def __init__(self) -> None:
        self._counted = _CountedSteps()
        self.marks: list[int] = []
        self.ended_mode = ""
        self.ended_ns = 0
        self.number = 0

    @property
    def phase(self) -> int:
        """The phase of this moment."""
        marks, left = self.marks.copy(), 0
        for what in marks[-2::-2]:
            if what > _CLOSE:
                return _OTHER
            if what == LEAVE:
                left += 1
            elif what < LEAVE:
                if not left:
                    return what
                left -= 1
        return self._counted.phase_after(left)

    def listen(self, listener: PhaseListener | None) -> None:
        """Have each phase reported from now on, when it is counted."""
        self.count()
        self._counted.listen(listener)

    def enter(self, phase: int) -> int:
        """Enter a phase; return when, or 0 if it is not part of a step."""
        now = time.perf_counter_ns()
        marks = self.marks
        if not marks and phase not in _BEGINNINGS and not self._counted.has_begun:
            return 0
        marks += phase, now
        return now

    def leave(self) -> int:
        """End the phase that was entered last; return when."""
        now = time.perf_counter_ns()
        marks = self.marks
        if marks or self._counted.has_begun:
            marks += LEAVE, now
            if len(marks) > MAX_MARKS:
                self.count()
        return now

    def end_step(self, mode: str = TRAIN) -> None:
        """End all phases and the step now. If the one before was not closed, both become one."""
        now = time.perf_counter_ns()
        marks = self.marks
        if marks or self._counted.has_begun:
            marks += _ENDS[mode], now
            self.ended_mode = mode
            self.ended_ns = now

    def close_step(self) -> str:
        """Make the next step another one than that which has ended; return the mode of that, empty if there is none."""
        mode = self.ended_mode
        if mode:
            self.ended_mode = ""
            self.number += 1
            # No phase changes now, so that the time does not matter.
            self.marks.extend((_CLOSE, self.ended_ns))
        return mode

    def drain(self) -> list[StepRow]:
        """Return the steps that were closed since the last call."""
        self.count()
        return self._counted.take()

    def count(self) -> None:
        """Work out what the marks mean."""
        marks = self.marks.copy()
        # Before they are counted: the program may be ended in the middle of it, and count what is left.
        self.marks.clear()
        if marks:
            self._counted.add(marks)


class _CountedSteps:
    """Works out from marks how long each phase of each step took."""

    def __init__(self) -> None:
        # Unix time of the monotonic clock's zero, read once: later changes of the time must not stretch a step.
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()
        self._phase = _OTHER
        self._outer: list[int] = []
        self._since_ns = 0
        self._spent = _NO_TIME.copy()
        # When the step began that is not closed; when and in which mode it has ended, and how long its phases took.
        self._began_ns = self._ended_ns = 0
        self._ended_mode = ""
        self._ended_spent = _NO_TIME.copy()
        self._closed: list[StepRow] = []
        self._number = 0
        self._listener: PhaseListener | None = None
        # The phases that the listener has not received yet, and when they began; the innermost one is the last.
        self._open: list[tuple[int, int]] = []

    @property
    def has_begun(self) -> bool:
        return self._since_ns > 0

    def phase_after(self, leaves: int) -> int:
        """Return the phase after so many more have been left."""
        if not leaves:
            return self._phase
        return self._outer[-leaves] if leaves <= len(self._outer) else _OTHER

    def listen(self, listener: PhaseListener | None) -> None:
        self._listener = listener
        self._open.clear()

    def take(self) -> list[StepRow]:
        closed, self._closed = self._closed, []
        return closed

    def add(self, marks: Sequence[int]) -> None:
        """Add what was marked since the last call."""
        whats, times = marks[::2], marks[1::2]
        if not self._since_ns:
            self._began_ns = self._since_ns = times[0]
        if self._listener is not None:
            self._report(whats, times, self._listener)
        phase, outer, spent = self._phase, self._outer, self._spent
        for what, now, took in zip(
            whats, times, map(operator.sub, times, chain((self._since_ns,), times)), strict=False
        ):
            spent[phase] += took
            if what < LEAVE:
                outer.append(phase)
                phase = what
            elif what == LEAVE:
                phase = outer.pop() if outer else _OTHER
            elif what == _CLOSE:
                self._close()
            else:
                # Several optimizers step in turn, each of which ends the step.
                self._ended_spent = list(map(operator.add, self._ended_spent, spent)) if self._ended_mode else spent
                self._ended_mode, self._ended_ns = _ENDED_MODES[what], now
                spent = _NO_TIME.copy()
                # Phases whose end was skipped by an exception, or because the step ends with them.
                outer.clear()
                phase = _OTHER
        self._phase, self._since_ns, self._spent = phase, times[-1], spent

    def _close(self) -> None:
        epoch, began_ns, ended_ns = self._epoch_ns, self._began_ns, self._ended_ns
        times_us = (began_ns + epoch) // 1000, (ended_ns + epoch) // 1000
        self._closed.append(StepRow._make((self._number, 1, self._ended_mode, *times_us, self._ended_spent)))
        self._number += 1
        self._began_ns = ended_ns
        self._ended_mode = ""

    def _report(self, whats: Sequence[int], times: Sequence[int], listener: PhaseListener) -> None:
        number, epoch = self._number, self._epoch_ns
        for what, now in zip(whats, times, strict=True):
            if what < LEAVE:
                self._open.append((what, now))
            elif what == _CLOSE:
                number += 1
            elif self._open:
                phase, began = self._open.pop()
                listener(phase, began + epoch, now + epoch, number)
            if what > _CLOSE:
                # The phases around it are still open because an exception skipped their ends.
                self._open.clear()
