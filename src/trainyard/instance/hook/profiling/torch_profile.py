"""A profile of some steps by torch.profiler: operators, kernels, shapes and memory, as a trace."""

import functools
import os
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler as autograd_profiler

# As torch names the steps of its own schedules; readers of traces look for it.
_STEP_ANNOTATION = "ProfilerStep#"
# How much the memory of the process may grow while torch records. What torch makes of it at the end takes about ten
# times as much for a moment, and the trace twice as much on the disk.
MAX_GROWTH_BYTES = 96 * 1024**2
# The program itself may need more memory in some steps, so a few are always profiled.
_MIN_STEPS = 3
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# What starts a profiler of torch on the calling thread.
_STARTS = ("__enter__", "_prepare_trace", "_start_trace")
_PROFILERS: tuple[Any, ...] = tuple(
    found
    for name in ("profile", "emit_nvtx", "emit_itt")
    if (found := getattr(autograd_profiler, name, None)) is not None
)


class TorchProfile:
    """Profiles from `begin` to `end`, with a mark for each step. Both run on the training thread."""

    what = "The torch profile"

    def __init__(self, own: "OwnProfiler") -> None:
        self._own = own
        self._profile: Any = None
        self._step: Any = None
        self._first_bytes = 0
        self._steps = 0
        self.started_us = 0

    def begin(self) -> None:
        self._first_bytes = _resident_bytes()
        profile: Any = torch.profiler.profile(activities=_activities(), record_shapes=True, profile_memory=True)
        self.started_us = time.time_ns() // 1000
        with self._own, warnings.catch_warnings():
            # Some versions warn about what the program does not do.
            warnings.simplefilter("ignore")
            profile.start()
        self._profile = profile

    def begin_step(self, number: int) -> None:
        self._leave_step()
        self._steps += 1
        self._step = torch.profiler.record_function(f"{_STEP_ANNOTATION}{number}")
        self._step.__enter__()

    def excess(self) -> str:
        """Return why the profile must end now; empty as long as it need not."""
        grown = _resident_bytes() - self._first_bytes
        if grown <= MAX_GROWTH_BYTES or self._steps < _MIN_STEPS:
            return ""
        return f"the memory of the process had grown by {grown >> 20} MiB"

    @property
    def has_device(self) -> bool:
        """Whether it records what a device does, and not the CPU alone."""
        return self._profile is not None and self._profile.use_device is not None

    def end(self) -> Callable[[Path], None]:
        """Stop, and return what writes the trace to a path."""
        self._leave_step()
        profile, self._profile = self._profile, None
        profile.stop()
        return functools.partial(_save, profile)

    def abandon(self) -> None:
        """Stop without a result."""
        self._leave_step()
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.stop()

    def forget(self) -> None:
        """Stop in a forked child, which has inherited a profiler that records."""
        profile, self._profile, self._step = self._profile, None, None
        if profile is None or not torch.autograd._profiler_enabled():
            return
        if profile.use_device is None:
            torch.autograd._disable_profiler()
        else:
            # The driver of a device cannot be used in a forked process, not even to stop. Allocations are recorded
            # for ever, which is why such a profile ends before its process forks.
            torch._C._autograd._enable_record_function(False)

    def _leave_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)


class OwnProfiler:
    """Tells the profiler of a window from those of the program. A context in which our own one starts.

    `on_program` is called when the program starts one of its own, which it may do at any moment; torch can have one at
    a time. `on_fork` is called before the process forks.
    """

    def __init__(self) -> None:
        self.on_program: Callable[[], None] = lambda: None
        self.on_fork: Callable[[], None] = lambda: None
        self._is_starting = False
        self._of_program: weakref.WeakSet[Any] = weakref.WeakSet()
        _observe(self)

    @property
    def is_program_profiling(self) -> bool:
        """Whether a profiler of the program runs, or is about to. Asked while none of ours runs."""
        return bool(self._of_program) or torch.autograd._profiler_enabled()

    def detach(self) -> None:
        _stop_observing(self)

    def observe_start(self, profiler: Any) -> None:
        if self._is_starting:
            return
        self._of_program.add(profiler)
        self.on_program()

    def observe_end(self, profiler: Any) -> None:
        self._of_program.discard(profiler)

    def __enter__(self) -> None:
        self._is_starting = True

    def __exit__(self, *_: object) -> None:
        self._is_starting = False


_own: OwnProfiler | None = None
_is_patched: list[bool] = []


def _observe(own: OwnProfiler) -> None:
    global _own
    _own = own
    if _is_patched:
        return
    _is_patched.append(True)
    for profiler in _PROFILERS:
        for name in _STARTS:
            if name in vars(profiler):
                setattr(profiler, name, _with_observed_start(vars(profiler)[name]))
        profiler.__exit__ = _with_observed_end(profiler.__exit__)
    os.register_at_fork(before=_observe_fork)


def _stop_observing(own: OwnProfiler) -> None:
    global _own
    if _own is own:
        _own = None


def _observe_fork() -> None:
    if _own is not None:
        _own.on_fork()


def _with_observed_start(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _own is not None:
            _own.observe_start(self)
        return original(self, *args, **kwargs)

    return start


def _with_observed_end(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def end(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _own is not None:
            _own.observe_end(self)
        return original(self, *args, **kwargs)

    return end


def _activities() -> list[Any]:
    """Return what to profile: devices only if the program uses them, because asking would initialize them."""
    activity = torch.profiler.ProfilerActivity
    supported = set(torch.profiler.supported_activities())
    if not torch.cuda.is_initialized():
        supported.discard(activity.CUDA)
    return sorted(supported, key=str)


def _save(profile: Any, path: Path) -> None:
    profile.export_chrome_trace(str(path))


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - at each step of a profile
        return int(file.read().split()[1]) * _PAGE_BYTES
