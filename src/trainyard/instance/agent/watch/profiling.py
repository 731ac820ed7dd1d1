"""Profiles an instance while its program runs, and follows the commands that change how."""

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.watch.program_profiles import ProgramProfiles
from trainyard.link.contract import ProfilerSpec

if TYPE_CHECKING:
    from trainyard.instance.agent.watch.hardware.instance_samples import InstanceSamples

# Shorter programs have no samples, and do not wait for the modules that take them.
_FIRST_S = 0.25
# How long the end of an instance waits for the last samples.
_END_S = 10.0

log = logging.getLogger(__name__)


class Profiling:
    """Samples the hardware from the start of the program to its end, while that is enabled.

    The program profiles itself, and is told how. One thread calls everything. Without a profiler in the spec, nothing
    happens.
    """

    def __init__(self, context: InstanceContext) -> None:
        self._context = context
        self._profiler = context.spec.profiler
        self._sampling: _HardwareSampling | None = None
        self._pid: int | None = None
        self._program = ProgramProfiles(context, self._profiler) if self._profiler is not None else None

    def start(self, pid: int) -> None:
        """Begin: the program runs, and `pid` is the process above all others of it."""
        self._pid = pid
        self._begin_or_end()
        if self._program is not None:
            self._program.start()

    def poll(self, _now: float) -> None:
        """Change what new commands ask for. What they do not name stays as it is."""
        for command in self._context.commands.take_profiling():
            # The program may not run yet: its packages may be on their way.
            if self._sampling is not None:
                self._sampling.change(command.payload)
            if self._program is not None:
                self._program.change(command.payload)
        self._begin_or_end()
        if self._program is not None:
            self._program.poll()

    def stop(self) -> None:
        """End, and wait for the last samples. A second call does nothing."""
        self._pid = None
        if self._sampling is not None:
            self._sampling.stop()
            self._sampling = None
        if self._program is not None:
            self._program.stop()

    def _begin_or_end(self) -> None:
        if self._profiler is None or self._pid is None:
            return
        changes = self._context.commands.profiler_changes
        is_enabled = changes.get("is_enabled", self._profiler.is_enabled) is True
        if self._sampling is not None and not is_enabled:
            self._sampling.end()
        if self._sampling is not None and self._sampling.has_ended:
            # Not earlier: two at a time would write the same files.
            self._sampling.stop()
            self._sampling = None
        if self._sampling is None and is_enabled:
            self._sampling = _HardwareSampling(self._context, self._profiler, self._pid)
            self._sampling.change(changes)


class _HardwareSampling:
    """The thread that samples, and how it is told to change or to end."""

    def __init__(self, context: InstanceContext, profiler: ProfilerSpec, pid: int) -> None:
        self._context = context
        self._profiler = profiler
        self._pid = pid
        self._interval_ms = profiler.interval_ms
        self._is_exported = profiler.is_exported
        self._uri = profiler.output.uri
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._begun: InstanceSamples | None = None
        self._thread = threading.Thread(target=self._run, name="hardware", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether it was told to end, and everything is written."""
        return self._is_over.is_set() and not self._thread.is_alive()

    def change(self, payload: Mapping[str, object]) -> None:
        interval_ms, is_exported, uri = (payload.get(name) for name in ("interval_ms", "is_exported", "uri"))
        with self._lock:
            if isinstance(is_exported, bool):
                self._is_exported = is_exported
            if type(interval_ms) is int and interval_ms > 0:
                self._interval_ms = interval_ms
            if isinstance(uri, str):
                self._uri = uri
            if self._begun is not None:
                self._begun.change(self._interval_ms, is_exported=self._is_exported, uri=self._uri)

    def end(self) -> None:
        """End soon, after a last sample."""
        with self._lock:
            self._is_over.set()
            if self._begun is not None:
                self._begun.end()

    def stop(self) -> None:
        """End, and wait for the last samples."""
        self.end()
        self._thread.join(_END_S)
        if self._begun is not None:
            self._begun.note_losses()

    def _run(self) -> None:
        if self._is_over.wait(_FIRST_S):
            return
        try:
            # Imported here, because the program has to run before this takes a part of its processor time.
            from trainyard.instance.agent.watch.hardware.instance_samples import InstanceSamples

            begun = InstanceSamples(self._context, self._profiler, self._pid)
            with self._lock:
                self._begun = begun
                begun.change(self._interval_ms, is_exported=self._is_exported, uri=self._uri)
                if self._is_over.is_set():
                    begun.end()
            begun.run()
        except Exception:
            log.exception("the hardware is not sampled any more")
