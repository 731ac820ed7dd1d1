"""A trial of a program: it runs with changes that come from outside, and ends after some training steps."""

import contextlib
import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from trainyard.formats.profiles.contract import CHANGES_VARIABLE, STEPS_VARIABLE, ProgramChange

Note = Callable[[str], None]

# For what the program does when it ends; a program that waits for its own threads would never end.
_EXIT_S = 30.0
_JOIN_S = 0.5


@dataclass(frozen=True, slots=True)
class ProgramTrial:
    """What is changed, and the number of training steps after which the program ends; None if it is not to end."""

    changes: Mapping[ProgramChange, str] = field(default_factory=dict)
    steps: int | None = None


def read_trial(environment: Mapping[str, str], *, note: Note) -> ProgramTrial:
    """Return the trial that the environment of this process describes. What is wrong with it is noted and left out."""
    changes: dict[ProgramChange, str] = {}
    try:
        wanted = json.loads(environment.get(CHANGES_VARIABLE) or "{}")
        for name, value in wanted.items():
            if name in tuple(ProgramChange) and isinstance(value, str):
                changes[ProgramChange(name)] = value
            else:
                note(f'The trial cannot change "{name}" to {value!r}: it is no change of a program.')
    except (ValueError, AttributeError):
        note(f"The trial changes nothing: {CHANGES_VARIABLE} is not a JSON object.")
    steps = environment.get(STEPS_VARIABLE, "")
    return ProgramTrial(changes, int(steps) if steps.isdigit() and int(steps) else None)


class AppliedChanges:
    """What was applied of the wanted changes, and why others were not."""

    def __init__(self, wanted: Mapping[ProgramChange, str], *, note: Note) -> None:
        self._wanted, self._note = wanted, note
        self._applied: dict[str, str] = {}
        self._refused: dict[str, str] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether anything is to be changed; false in a program that runs as it is."""
        return bool(self._wanted)

    def wanted(self, change: ProgramChange) -> str | None:
        return self._wanted.get(change)

    def apply(self, change: ProgramChange, value: str) -> None:
        """Record that a change was applied. It was not if it was refused anywhere in the program."""
        self._applied[change] = value

    def refuse(self, change: ProgramChange, why: str) -> None:
        self._refused.setdefault(change, why)

    def facts(self) -> dict[str, str]:
        return {change: value for change, value in self._applied.items() if change not in self._refused}

    def note_missing(self) -> None:
        """Name each change that was not applied, once; when the program ends."""
        for change in self._wanted:
            if change not in self.facts():
                why = self._refused.pop(change, "the program has nothing that it applies to")
                self._note(f"The trial did not change {change}: {why}.")
        self._wanted = {}


class TrialEnd:
    """Ends the program after its training steps, with exit code 0.

    The first attempt raises SystemExit on the training thread, so that the program can clean up. A program that catches
    it is ended at once at its next step, and one that does not end within some seconds then. `close` must write what
    there is to write.
    """

    def __init__(self, steps: int | None, close: Callable[[], None]) -> None:
        self._left = steps
        self._close = close
        self._has_raised = False
        self._closed = threading.Event()
        self._watch: threading.Thread | None = None

    def count_steps(self, steps: int) -> None:
        if self._left is not None:
            self._left = max(0, self._left - steps)

    @property
    def is_due(self) -> bool:
        return self._left == 0

    def end_program(self) -> None:
        """End this process. To be called on the training thread, between two steps."""
        if self._has_raised or threading.current_thread() is not threading.main_thread():
            # Raised elsewhere, SystemExit ends only a thread.
            self._end_at_once()
        self._has_raised = True
        self._watch = threading.Thread(target=self._end_later, name="trainyard-trial", daemon=True)
        self._watch.start()
        raise SystemExit(0)

    def cancel(self) -> None:
        """Leave the rest to the program, whose end has begun."""
        self._closed.set()
        self._left = None
        if self._watch is not None and self._watch is not threading.current_thread():
            # A warm worker ends at once if no thread is left.
            self._watch.join(_JOIN_S)

    def _end_later(self) -> None:
        if not self._closed.wait(_EXIT_S):
            self._end_at_once()

    def _end_at_once(self) -> NoReturn:
        with contextlib.suppress(Exception):
            self._close()
        for child in multiprocessing.active_children():
            child.terminate()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)
