"""Decides in which steps profiles are taken, and takes them: as the configuration says, and on request.

Everything happens where one step ends and the next begins, on the training thread. Two profiles that record everything
that the program does never run at once: the second waits for the first. Events of data loaders and of communication are
cheap and run beside them.
"""

import functools
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from trainyard.formats.profiles.parameters import (
    ProfileKind,
    ProfileWindow,
    ProfilingParameters,
    PythonProfilerName,
)
from trainyard.formats.profiles.step_times import StepRow
from trainyard.instance.hook.profiling.background import BackgroundWriter
from trainyard.instance.hook.profiling.event_recorder import (
    EventRecorder,
    EventWindow,
    ThreadEvent,
    encode_events,
    is_communication,
)
from trainyard.instance.hook.profiling.profile_output import ProfileOutput
from trainyard.instance.hook.profiling.profile_requests import ProfileRequests
from trainyard.instance.hook.profiling.python_profile import (
    CProfileWindow,
    PyinstrumentWindow,
    PythonProfile,
    is_python_profiled,
)
from trainyard.instance.hook.profiling.torch_profile import OwnProfiler, TorchProfile

Note = Callable[[str], None]

# Between two looks at the files that say what is wanted.
LOOK_S = 1.0
# A window that takes longer is cut at the end of a step.
MAX_WINDOW_S = 600.0
# Requests that wait for others.
_MAX_WAITING = 4
_NEVER = 2**62
# How many errors there may be until no more profiles are taken.
_MAX_ERRORS = 50
_MAX_NOTED_ERRORS = 3
_EVENTS = {
    ProfileKind.DATALOADER: "pythontimeline",
    ProfileKind.HOROVOD: "horovod_timeline",
    ProfileKind.SMDATAPARALLEL: "smdataparallel_timeline",
}
_NAMES = {
    ProfileKind.DETAILED: "The torch profile",
    ProfileKind.PYTHON: "The Python profile",
    ProfileKind.DATALOADER: "The data loader profile",
    ProfileKind.HOROVOD: "The profile of communication",
    ProfileKind.SMDATAPARALLEL: "The profile of communication",
}


class _WindowProfile(Protocol):
    """A profile that records everything. All of it may raise."""

    def begin(self) -> None: ...

    def begin_step(self, number: int) -> None: ...

    def excess(self) -> str: ...

    def end(self) -> Any: ...

    def abandon(self) -> None: ...

    def forget(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Planned:
    """A window that has not begun. With a `start_step` it begins there, otherwise at the Unix time `start_s`."""

    kind: ProfileKind
    window: ProfileWindow
    is_requested: bool = False

    @property
    def is_cheap(self) -> bool:
        return self.kind in _EVENTS


class _Running:
    """A window that has begun."""

    def __init__(self, planned: _Planned, first: int, recording: "_WindowProfile | EventWindow") -> None:
        self.planned, self.first, self.recording = planned, first, recording
        self.began_at = time.monotonic()
        window = planned.window
        is_timed = window.duration_s is not None
        # One that had to wait for another keeps its length.
        self._after = _NEVER if is_timed else first + window.steps
        self._ends_s = None if window.duration_s is None else time.time() + window.duration_s

    def has_ended(self, number: int) -> bool:
        return number >= self._after or (self._ends_s is not None and time.time() >= self._ends_s)

    @property
    def name(self) -> str:
        return _NAMES[self.planned.kind]


class ProfileWindows:
    """The profiles of one training. One thread calls everything, and nothing raises.

    `timer` is the TorchTimer, whose steps these are. Requests from before `since_s` are not for this process.
    """

    def __init__(
        self, ml: Path, *, host: str, worker: Callable[[], str], note: Note, timer: Any, since_s: float = 0.0
    ) -> None:
        self._requests = ProfileRequests(ml, note=note, since_s=since_s)
        self._host, self._worker = host, worker
        self._note, self._timer = note, timer
        self._own = OwnProfiler()
        self._own.on_program = functools.partial(self._give_way, "the program started a profiler of its own")
        self._own.on_fork = self._prepare_fork
        self._writer = BackgroundWriter(lambda error: self._note_error("Writing a profile", error))
        self._recorder = EventRecorder(timer, lambda: timer.facts().get("loaders", []))
        self._output: ProfileOutput | None = None
        self._parameters = ProfilingParameters()
        self._taken: dict[ProfileKind, ProfileWindow] = {}
        self._planned: list[_Planned] = []
        self._recording: _Running | None = None
        self._events: list[_Running] = []
        self._thread: int | None = None
        self._errors = 0
        # Set where an error occurs, which may be the thread that writes; the training thread gives up.
        self._has_failed = False
        self._is_off = False
        # When there is something to do next: at this step, or at this time of the monotonic clock.
        self._due_step = 0
        self._due_at = 0.0

    def begin_step(self, number: int, ended: StepRow | None = None) -> int:
        """Do what is due before a step begins, and return before which step there is more. `ended` is the one before.

        Requests and new parameters are read once a second, if there are steps.
        """
        if number < self._due_step and time.monotonic() < self._due_at:
            return self._due_step
        if self._has_failed:
            self._give_up()
            return self._due_step
        with self._guarded("Profiling"):
            self._thread = threading.get_ident()
            if ended is not None and self._events:
                self._recorder.record_step(ended)
            if time.monotonic() >= self._due_at:
                self._look(number)
            self._end_windows(number)
            self._begin_windows(number)
        self._plan_next(number)
        return self._due_step

    def close(self) -> None:
        """End all windows, and wait until everything is written."""
        if self._is_off:
            return
        self._is_off = True
        if self._recording is not None and self._thread == threading.get_ident():
            self._finish(self._recording)
        elif self._recording is not None:
            # Only the thread that began it can end it.
            self._note(f"{self._recording.name} is lost: the program ended in the middle of it.")
        for running in list(self._events):
            self._finish(running)
        for planned in self._planned:
            if planned.window.start_step is not None and not planned.is_requested:
                self._note(
                    f"{_NAMES[planned.kind]} of step {planned.window.start_step} was not taken: the training ended "
                    "before it."
                )
        self._own.detach()
        self._writer.close()
        if self._writer.dropped:
            self._note(f"{self._writer.dropped} profiles were dropped, because they came faster than they were stored.")

    def forget(self) -> None:
        """Stop everything in a forked child."""
        self._is_off = True
        self._own.detach()
        self._writer.forget()
        recording, self._recording = self._recording, None
        if recording is not None and not isinstance(recording.recording, EventWindow):
            recording.recording.forget()
        self._events.clear()
        self._recorder.forget()

    def _look(self, number: int) -> None:
        self._due_at = time.monotonic() + LOOK_S
        wanted = self._requests.look()
        if wanted.parameters is not None and wanted.parameters != self._parameters:
            self._change(wanted.parameters, number)
        for steps in wanted.requests:
            if sum(each.is_requested for each in self._planned) >= _MAX_WAITING:
                self._note("A request for a profile was dropped, because earlier ones are still being carried out.")
                continue
            self._planned.append(_Planned(ProfileKind.DETAILED, ProfileWindow(number, steps), is_requested=True))

    def _change(self, parameters: ProfilingParameters, number: int) -> None:
        """Plan the windows of new parameters; those that were planned and are gone are not taken."""
        if parameters.path != self._parameters.path:
            self._output = None
        self._parameters = parameters
        same = {kind for kind, window in parameters.windows.items() if self._taken.get(kind) == window}
        self._planned = [each for each in self._planned if each.is_requested or each.kind in same]
        running = (*self._events, *([self._recording] if self._recording is not None else []))
        for each in running:
            if not each.planned.is_requested and parameters.windows.get(each.planned.kind) is None:
                self._finish(each)
        taken, self._taken = self._taken, dict(parameters.windows)
        for kind, window in parameters.windows.items():
            if taken.get(kind) == window:
                continue
            rest = _rest_of(window, number)
            if rest is None:
                self._note(f"{_NAMES[kind]} was not taken: its steps were over before the program knew of it.")
            else:
                self._planned.append(_Planned(kind, rest))

    def _end_windows(self, number: int) -> None:
        running = (*self._events, *([self._recording] if self._recording is not None else []))
        for each in running:
            if each.has_ended(number):
                self._finish(each)
            elif why := _excess(each):
                self._note(f"{each.name} was cut after {_counted(number - each.first)}: {why}.")
                self._finish(each)
            elif not isinstance(each.recording, EventWindow):
                with self._guarded(each.name, each):
                    each.recording.begin_step(number)

    def _begin_windows(self, number: int) -> None:
        for planned in [each for each in self._planned if _is_due(each.window, number)]:
            if not planned.is_cheap and self._recording is not None:
                continue
            self._planned.remove(planned)
            name = _NAMES[planned.kind]
            if planned.kind is ProfileKind.DETAILED and self._own.is_program_profiling:
                self._note(f"{name} was not taken, because a profiler of the program itself is running.")
            elif planned.kind is ProfileKind.PYTHON and is_python_profiled():
                self._note(f"{name} was not taken, because a Python profiler of the program itself is running.")
            else:
                self._begin(planned, number)

    def _begin(self, planned: _Planned, number: int) -> None:
        with self._guarded(_NAMES[planned.kind]):
            if planned.is_cheap:
                opened = self._event_window(planned.kind, planned.window)
                self._recorder.open(opened)
                self._events.append(_Running(planned, number, opened))
                return
            recording = self._make_recording(planned)
            running = self._recording = _Running(planned, number, recording)
            with self._guarded(running.name, running):
                recording.begin()
                recording.begin_step(number)

    def _make_recording(self, planned: _Planned) -> _WindowProfile:
        if planned.kind is ProfileKind.DETAILED:
            return TorchProfile(self._own)
        write = self._write_python_profile
        if planned.window.profiler is PythonProfilerName.CPROFILE:
            give_way = functools.partial(self._give_way, "the program started a Python profiler of its own")
            return CProfileWindow(planned.window.timer, write, on_program=give_way)
        try:
            return PyinstrumentWindow(write)
        except ImportError:
            self._note(
                "pyinstrument is not installed in the environment of the job, so cProfile is used; name it in "
                "requirements.txt to have it."
            )
            return CProfileWindow(planned.window.timer, write, on_program=lambda: None)

    def _event_window(self, kind: ProfileKind, window: ProfileWindow) -> EventWindow:
        pattern = re.compile(window.metrics_regex, re.IGNORECASE)
        wants = pattern.search if kind is ProfileKind.DATALOADER else is_communication
        timeline, parameters = _EVENTS[kind], self._parameters

        def write(events: Sequence[ThreadEvent]) -> None:
            output, ended_us = self._open_output(), max(each.ended_us for each in events)
            self._writer.submit(lambda: output.write_events(ended_us, timeline, encode_events(events)))

        return EventWindow(
            _NAMES[kind],
            wants=lambda name: bool(wants(name)),
            write=write,
            file_bytes=parameters.file_bytes,
            file_s=parameters.file_s,
        )

    def _finish(self, running: _Running) -> None:
        """End a window, and have it written."""
        recording = running.recording
        if isinstance(recording, EventWindow):
            self._events.remove(running)
            with self._guarded(running.name):
                self._recorder.close(recording)
            return
        self._recording = None
        with self._guarded(running.name):
            saved = recording.end()
            if isinstance(recording, TorchProfile):
                output, started_us = self._open_output(), recording.started_us
                self._writer.submit(lambda: output.write_trace(running.first, started_us, saved))

    def _write_python_profile(self, profile: PythonProfile) -> None:
        output = self._open_output()
        self._writer.submit(lambda: output.write_python_profile(profile.profiler, profile.window, profile.files))

    def _give_way(self, why: str) -> None:
        """End the window that runs, because it cannot run beside what the program does."""
        running = self._recording
        if running is None or threading.get_ident() != self._thread:
            return
        self._note(f"{running.name} ended early: {why}.")
        self._finish(running)

    def _prepare_fork(self) -> None:
        """End a window that could not be ended in the child, such as a worker of a data loader."""
        running = self._recording
        if running is not None and isinstance(running.recording, TorchProfile) and running.recording.has_device:
            self._give_way("the program started a process")

    def _open_output(self) -> ProfileOutput:
        if self._output is None:
            folder = self._requests.folder(self._parameters)
            self._output = ProfileOutput(folder, host=self._host, worker=self._worker())
        return self._output

    def _plan_next(self, number: int) -> None:
        """Find out when there is something to do next, so that all other steps cost nothing."""
        if self._recording is not None or self._events:
            self._due_step = number + 1
            return
        steps = [each.window.start_step for each in self._planned]
        if None in steps or any(step is not None and step <= number for step in steps):
            self._due_step = number + 1
            return
        self._due_step = min((step for step in steps if step is not None), default=_NEVER)

    @contextmanager
    def _guarded(self, what: str, running: _Running | None = None) -> Iterator[None]:
        """Keep errors from the program: note them, and abandon the window."""
        try:
            yield
        except Exception as error:
            if running is not None and self._recording is running:
                self._recording = None
                self._abandon(running)
            self._note_error(what, error)

    def _give_up(self) -> None:
        """Stop all windows, and begin no more."""
        self._is_off = True
        self._due_step, self._due_at = _NEVER, math.inf
        running, self._recording = self._recording, None
        if running is not None:
            self._abandon(running)
        self._events.clear()
        self._recorder.forget()
        self._own.detach()

    def _abandon(self, running: _Running) -> None:
        try:
            if not isinstance(running.recording, EventWindow):
                running.recording.abandon()
        except Exception:
            # What it was abandoned for is noted.
            return

    def _note_error(self, what: str, error: Exception) -> None:
        self._errors += 1
        if self._errors <= _MAX_NOTED_ERRORS and not self._has_failed:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or repr(error)
            self._note(f"{what} failed; training continues: {why}.")
        if self._errors == min(_MAX_ERRORS, self._parameters.open_failures):
            self._has_failed = True
            self._note(f"No more profiles are taken after {self._errors} errors.")


def _is_due(window: ProfileWindow, number: int) -> bool:
    if window.start_step is not None:
        return number >= window.start_step
    return window.start_s is None or time.time() >= window.start_s


def _rest_of(window: ProfileWindow, number: int) -> ProfileWindow | None:
    """Return what is left of a window before a step begins; None if nothing is."""
    if window.start_step is not None:
        steps = min(window.steps, window.start_step + window.steps - number)
        return replace(window, start_step=max(window.start_step, number), steps=steps) if steps > 0 else None
    now_s = time.time()
    # "Now" is the moment at which the parameters are known.
    start_s = now_s if window.start_s is None else window.start_s
    if window.duration_s is None:
        return replace(window, start_s=start_s)
    duration_s = min(window.duration_s, start_s + window.duration_s - now_s)
    return replace(window, start_s=start_s, duration_s=duration_s) if duration_s > 0 else None


def _excess(running: _Running) -> str:
    if time.monotonic() - running.began_at > MAX_WINDOW_S and not isinstance(running.recording, EventWindow):
        return f"it took more than {MAX_WINDOW_S:.0f} seconds"
    return running.recording.excess()


def _counted(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"
