"""Profiles of some steps by a profiler of Python: cProfile for each step, or pyinstrument for all together."""

import cProfile
import importlib
import marshal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from trainyard.formats.profiles.parameters import TimerName

# Of one window. A profile of one step takes up to a few hundred kilobytes.
MAX_BYTES = 64 * 1024**2

_STEP_MODE, _STEP_PHASE = "train", "stepstart"
# In the order in which the default takes them.
# Of the process, because since Python 3.12 cProfile follows all threads, and has one clock for them.
_TIMERS: Mapping[TimerName, Callable[[], float] | None] = {
    # The clock of cProfile itself, which is the fastest.
    TimerName.TOTAL_TIME: None,
    TimerName.CPU_TIME: time.process_time,
    TimerName.OFF_CPU_TIME: lambda: time.perf_counter() - time.process_time(),
}


class PythonProfile(NamedTuple):
    """A finished profile: the name of the profiler, that of its window as AWS writes it, and its files."""

    profiler: str
    window: str
    files: dict[str, bytes]


class CProfileWindow:
    """Profiles the training thread with cProfile, each step by itself. Hands each profile to `write`."""

    what = "The Python profile"

    def __init__(
        self, timer: TimerName, write: Callable[[PythonProfile], None], *, on_program: Callable[[], None]
    ) -> None:
        self._timers = list(_TIMERS.values()) if timer is TimerName.DEFAULT else [_TIMERS[timer]]
        self._write, self._on_program = write, on_program
        self._profile: cProfile.Profile | None = None
        self._number = self._started_us = self._steps = self._written_bytes = 0

    def begin(self) -> None:
        _watch_program(self._on_program)

    def begin_step(self, number: int) -> None:
        self._end_step(number)
        timer = self._timers[self._steps % len(self._timers)]
        profile = cProfile.Profile() if timer is None else cProfile.Profile(timer)
        self._number, self._started_us = number, time.time_ns() // 1000
        self._steps += 1
        _ENABLE(profile)
        self._profile = profile

    def excess(self) -> str:
        return f"{MAX_BYTES >> 20} MiB of profiles were written" if self._written_bytes > MAX_BYTES else ""

    def end(self) -> None:
        self._end_step(self._number + 1)
        _stop_watching()

    def abandon(self) -> None:
        _stop_watching()
        self._disable()

    forget = abandon

    def _disable(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.disable()

    def _end_step(self, number: int) -> None:
        profile = self._profile
        if profile is None:
            return
        self._disable()
        profile.create_stats()
        data = marshal.dumps(profile.stats)
        self._written_bytes += len(data)
        window = window_name(self._number, self._started_us, number)
        self._write(PythonProfile("cProfile", window, {"python_stats": data}))


class PyinstrumentWindow:
    """Samples the stack of the training thread with pyinstrument. Raises ImportError if that is not installed."""

    what = "The Python profile"

    def __init__(self, write: Callable[[PythonProfile], None]) -> None:
        self._profiler: Any = importlib.import_module("pyinstrument").Profiler()
        self._write = write
        self._first: int | None = None
        self._last = self._started_us = 0
        self._is_running = False

    def begin(self) -> None:
        self._started_us = time.time_ns() // 1000
        self._profiler.start()
        self._is_running = True

    def begin_step(self, number: int) -> None:
        self._first = number if self._first is None else self._first
        self._last = number

    def excess(self) -> str:
        return ""

    def end(self) -> None:
        self.abandon()
        renderer = importlib.import_module("pyinstrument.renderers").JSONRenderer()
        files = {
            "python_stats.json": self._profiler.output(renderer=renderer).encode(),
            "python_stats.html": self._profiler.output_html().encode(),
        }
        window = window_name(self._first or 0, self._started_us, self._last + 1)
        self._write(PythonProfile("pyinstrument", window, files))

    def abandon(self) -> None:
        if self._is_running:
            self._is_running = False
            self._profiler.stop()

    def forget(self) -> None:
        """Nothing records in a forked child except a callback, which goes with the profile of the thread."""
        sys.setprofile(None)


# Of the class above, so that a patch of cProfile.Profile does not matter.
_ENABLE: Callable[[Any], None] = cProfile.Profile.enable


def _watch_program(on_program: Callable[[], None]) -> None:
    """Call `on_program` before the program enables a cProfile of its own, which would fail, or end ours."""

    def enable(self: cProfile.Profile, *args: Any, **kwargs: Any) -> None:
        on_program()
        cast("Any", _ENABLE)(self, *args, **kwargs)

    cast("Any", cProfile.Profile).enable = enable


def _stop_watching() -> None:
    # Only what was put there; the method itself is that of a class above.
    if "enable" in vars(cProfile.Profile):
        del cast("Any", cProfile.Profile).enable


def is_python_profiled() -> bool:
    """Whether the program, or a debugger of it, profiles this thread already."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is not None and monitoring.get_tool(monitoring.PROFILER_ID) is not None:
        return True
    return sys.getprofile() is not None


def window_name(first: int, started_us: int, after: int) -> str:
    """Return the name of the folder of a profile: where it began and ended, each as mode, step, phase and time."""
    ended_us = time.time_ns() // 1000
    return f"{_STEP_MODE}-{first}-{_STEP_PHASE}-{started_us}_{_STEP_MODE}-{after}-{_STEP_PHASE}-{ended_us}"
