"""Samples where the training thread is, a few times each second: the lines of the program that take its time.

Samples come from a thread of this process, so no right to trace it is needed. It takes little of the interpreter: a
sample is a walk up the frames to the innermost one of the program's own, and where nothing happens there are fewer.
"""

import linecache
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

# Short programs are judged as well; later samples only confirm the earlier ones.
_FIRST_INTERVAL_S, INTERVAL_S = 0.1, 0.25
_FIRST_SAMPLES = 200
# Where a thread waits, the time between samples grows up to this.
_MAX_INTERVAL_S = 4.0
# A thread gets the interpreter where the training thread releases it, or after 5 ms. Neither is a random moment: Python
# code would hardly ever be seen beside calls that release it. So a sample has a second, short wait, after which the
# interpreter is wanted at once.
_MAX_SHIFT_S = 0.008
_SWITCH_INTERVAL_S = 0.0001
_JOIN_S = 0.5
_MAX_PLACES = 2000
_MAX_LINES = 50
_MAX_TEXT = 120
# Scatters the samples evenly over the steps, which may last as long as the time between two of them.
_GOLDEN_RATIO, _SHIFT_RATIO = 0.6180339887, 0.7548776662
_LIBRARIES = ("/site-packages/", "/dist-packages/")
# Calls that the hook times pass through it; what they call is the program's choice.
_HOOK = f"{Path(__file__).parents[1]}/"

# The code and the instruction of the innermost frame of the program, and of the innermost frame at all.
_Place = tuple[int, CodeType | None, int, CodeType, int]


class StackSampler:
    """Samples the stack of one thread from `start` to `stop`. `moment` returns the phase of the step and its number."""

    def __init__(self, moment: Callable[[], tuple[int, int]]) -> None:
        self._moment = moment
        self._places: Counter[_Place] = Counter()
        self._lines: dict[tuple[CodeType | None, int, CodeType, int], tuple[str, str, int, str]] = {}
        self._are_libraries: dict[str, bool] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.samples = 0

    def start(self, thread: int) -> None:
        """Start to sample a thread, once."""
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, args=(thread,), name="trainyard-profiler", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread, which takes no time unless the program keeps the interpreter from it."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)
            self._thread = None

    def forget(self) -> None:
        """Drop the thread in a forked child, where it does not run."""
        self._thread = None
        self._stop = threading.Event()
        self._stop.set()

    def facts(self) -> Mapping[str, Any]:
        """Return the lines with the most samples, as JSON values."""
        lines: Counter[tuple[int, str, str, int, str]] = Counter()
        # The sampler may add one meanwhile; copying holds the interpreter.
        for (phase, own, at, inner, inner_at), samples in self._places.copy().items():
            lines[(phase, *self._line(own, at, inner, inner_at))] += samples
        hot = [
            {"phase": phase, "function": function, "file": file, "line": line, "called": called, "samples": samples}
            for (phase, function, file, line, called), samples in lines.most_common(_MAX_LINES)
        ]
        return {"hot_lines": hot, "stack_samples": self.samples}

    def _run(self, thread: int) -> None:
        last: tuple[_Place, int] | None = None
        waits = 1
        while not self._stop.wait(self._pause_s() * waits) and self._wait_for_moment():
            frame = sys._current_frames().get(thread)
            if frame is None:
                # The thread has ended.
                return
            phase, step = self._moment()
            place = self._place(frame, phase)
            del frame
            if last == (place, step):
                # Nothing happened since the last sample, so that the thread was there all the time.
                self._count(place, waits)
                waits = min(waits * 2, round(_MAX_INTERVAL_S / INTERVAL_S))
            else:
                self._count(place, 1)
                waits = 1
            last = place, step

    def _pause_s(self) -> float:
        interval = _FIRST_INTERVAL_S if self.samples < _FIRST_SAMPLES else INTERVAL_S
        return interval * (0.5 + self.samples * _GOLDEN_RATIO % 1)

    def _wait_for_moment(self) -> bool:
        """Wait for a moment that does not depend on what the training thread does; return False if this stops."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        has_stopped = self._stop.wait(_MAX_SHIFT_S * (self.samples * _SHIFT_RATIO % 1))
        # The program may have set it meanwhile.
        if sys.getswitchinterval() == _SWITCH_INTERVAL_S:
            sys.setswitchinterval(interval)
        return not has_stopped

    def _count(self, place: _Place, samples: int) -> None:
        self.samples += samples
        self._places[place] += samples
        if len(self._places) > _MAX_PLACES:
            self._places = Counter(dict(self._places.most_common(_MAX_PLACES // 2)))

    def _place(self, frame: FrameType, phase: int) -> _Place:
        while frame.f_code.co_filename.startswith(_HOOK) and frame.f_back is not None:
            frame = frame.f_back
        own: FrameType | None = frame
        while own is not None and self._is_library(own.f_code.co_filename):
            own = own.f_back
        if own is None:
            return phase, None, 0, frame.f_code, frame.f_lasti
        return phase, own.f_code, own.f_lasti, frame.f_code, frame.f_lasti

    def _is_library(self, file: str) -> bool:
        found = self._are_libraries.get(file)
        if found is None:
            found = self._are_libraries[file] = _is_library(file)
        return found

    def _line(self, own: CodeType | None, at: int, inner: CodeType, inner_at: int) -> tuple[str, str, int, str]:
        """Return the function, the file and the line of the program's own frame, and what the innermost one does."""
        key = own, at, inner, inner_at
        found = self._lines.get(key)
        if found is None:
            if len(self._lines) > _MAX_PLACES:
                self._lines.clear()
            code, instruction = (inner, inner_at) if own is None else (own, at)
            is_own = code is inner and instruction == inner_at
            line = _line_of(code, instruction)
            called = _expression(code, instruction) if is_own else ""
            called = called or f"{inner.co_qualname} ({_short(inner.co_filename)}:{_line_of(inner, inner_at)})"
            found = code.co_qualname, code.co_filename, line, called[:_MAX_TEXT]
            self._lines[key] = found
        return found


def _is_library(file: str) -> bool:
    is_named = any(each in file for each in _LIBRARIES) or file.startswith(("<frozen ", "<string>", "<eval_with_key>"))
    return is_named or file.startswith(_folders())


def _folders() -> tuple[str, ...]:
    """The folders of the standard library, of installed packages, of this package and of torch."""
    if not _known_folders:
        names = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        own = str(Path(__file__).parents[3])
        torch = getattr(sys.modules.get("torch"), "__path__", [])
        _known_folders.extend(f"{name.rstrip('/')}/" for name in {own, *torch, *filter(None, names)})
    return tuple(_known_folders)


_known_folders: list[str] = []


def _positions(code: CodeType, instruction: int) -> tuple[int | None, int | None, int | None, int | None]:
    return next(islice(code.co_positions(), instruction // 2, None), (None, None, None, None))


def _line_of(code: CodeType, instruction: int) -> int:
    return _positions(code, instruction)[0] or code.co_firstlineno


def _expression(code: CodeType, instruction: int) -> str:
    """Return the source of the call that an instruction makes, or else the line that it is on."""
    line, end_line, start, end = _positions(code, instruction)
    if line is None:
        return ""
    text = linecache.getline(code.co_filename, line)
    # Columns count bytes.
    call = text.encode()[start:end].decode(errors="replace") if line == end_line and start is not None else ""
    return (call if "(" in call else text).strip()


def _short(file: str) -> str:
    """Return the path of a library's file as one would import it."""
    for folder in _LIBRARIES:
        if folder in file:
            return file.rpartition(folder)[2]
    for folder in _folders():
        if file.startswith(folder):
            return file.removeprefix(folder)
    return file
