"""The writer thread: it resolves the numbers of steps, publishes them to subscribers, and writes them.

The training thread queues steps and never waits: if the queue holds too many steps, or too many bytes of raw tensors, a
step or its tensors are dropped and counted. A disk that is full or unavailable costs the steps of that time, nothing
else.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread

from trainyard.formats.tensors.contract import (
    HistogramSubscriber,
    Step,
    StepSubscriber,
    TensorTable,
    UrgentSubscriber,
)
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter
from trainyard.instance.hook.steps import OpenStep, RawCopy, ResolvedStep, StepResolver

log = logging.getLogger(__name__)

MAX_QUEUED_STEPS = 512
MAX_QUEUED_RAW_BYTES = 2 << 30
_FLUSH_INTERVAL_S = 1.0
# Not shorter, as each poll takes the interpreter lock from the training thread.
_POLL_INTERVAL_S = 0.005
_DEVICE_TIMEOUT_S = 60.0
_REOPEN_DELAY_S = 5.0


class StepWriter:
    """Owns the writer thread, which starts with the first step. The training thread calls `submit` and `has_room`.

    `note` receives what the user should know, `progress` the last step written and the count of dropped ones, and
    `on_resolved` every resolved step with the open step it came from. None of them may raise.
    """

    def __init__(
        self,
        worker: str,
        *,
        open_trial: Callable[[], TrialWriter] | None,
        subscribers: Sequence[StepSubscriber] = (),
        note: Callable[[str], None] = log.warning,
        progress: Callable[[int, int], None] = lambda _step, _dropped: None,
        on_resolved: Callable[[Step, OpenStep], None] = lambda _step, _open_step: None,
    ) -> None:
        self._resolver = StepResolver(worker)
        self._output = _TrialOutput(open_trial, note) if open_trial else None
        self._subscribers = list(subscribers)
        self._note, self._progress, self._on_resolved = note, progress, on_resolved
        # None marks the end.
        self._queue: SimpleQueue[tuple[OpenStep, TensorTable] | None] = SimpleQueue()
        self._raw_bytes = 0
        self._raw_lock = Lock()
        self._is_closing = False
        self._thread: Thread | None = None
        self.dropped = 0

    def has_room(self, size_bytes: int, *, held: int) -> bool:
        """Whether the queue has room for a raw tensor, besides those `held` by its step. An empty queue always does."""
        queued = self._raw_bytes + held
        return not queued or queued + size_bytes <= MAX_QUEUED_RAW_BYTES

    def submit(self, step: OpenStep, table: TensorTable) -> None:
        if self._is_closing or self._queue.qsize() >= MAX_QUEUED_STEPS:
            self.dropped += 1
            return
        if step.values:
            self._count_raw(step.size_bytes)
        self._queue.put((step, table))
        if self._thread is None:
            self._thread = Thread(target=self._run, name="trainyard-hook", daemon=True)
            self._thread.start()

    def close(self, timeout_s: float = 10.0) -> None:
        """Write the queued steps and mark the end. Returns when that is done or `timeout_s` has passed."""
        if not self._is_closing:
            self._is_closing = True
            self._queue.put(None)
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        flushed_at = time.monotonic()
        while True:
            with contextlib.suppress(Empty):
                queued = self._queue.get(timeout=max(flushed_at + _FLUSH_INTERVAL_S - time.monotonic(), 0))
                if queued is None:
                    break
                self._handle(*queued)
            if time.monotonic() - flushed_at >= _FLUSH_INTERVAL_S:
                flushed_at = time.monotonic()
                self._flush()
        self._end()

    def _handle(self, step: OpenStep, table: TensorTable) -> None:
        try:
            resolved = self._resolve(step, table)
            if resolved is None:
                self.dropped += 1
                return
            self._on_resolved(resolved.step, step)
            self._publish(resolved)
            if self._output is not None:
                self.dropped += self._output.write(resolved, step.values)
                if any(isinstance(each, UrgentSubscriber) and each.needs_flush() for each in self._subscribers):
                    self._flush()
        finally:
            if step.values:
                self._count_raw(-step.size_bytes)

    def _resolve(self, step: OpenStep, table: TensorTable) -> ResolvedStep | None:
        try:
            _wait_until_ready(step)
            return self._resolver.resolve(step, table)
        except Exception as error:
            log.warning("the numbers of a step could not be read", exc_info=True)
            self._note(f"The numbers of a step could not be read, and the step is left out: {error!r}.")
            return None

    def _count_raw(self, size_bytes: int) -> None:
        with self._raw_lock:
            self._raw_bytes += size_bytes

    def _publish(self, resolved: ResolvedStep) -> None:
        step = resolved.step
        for subscriber in list(self._subscribers):
            try:
                subscriber.take(step)
                if resolved.histograms is not None and isinstance(subscriber, HistogramSubscriber):
                    subscriber.take_histograms(step, resolved.histogram_places, resolved.histograms)
            except Exception as error:
                log.warning("a step subscriber has failed", exc_info=True)
                self._subscribers.remove(subscriber)
                self._note(
                    f"{type(subscriber).__name__} has failed at step {step.number} and gets no more steps: {error!r}."
                )

    def _flush(self) -> None:
        if self._output is not None:
            self.dropped += self._output.flush()
            self._progress(self._output.last_step, self.dropped)

    def _end(self) -> None:
        if self._output is not None:
            self._output.close(self.dropped)
            self._progress(self._output.last_step, self.dropped)
        for subscriber in self._subscribers:
            try:
                subscriber.end()
            except Exception as error:
                self._note(f"{type(subscriber).__name__} has failed at the end: {error!r}.")


class _TrialOutput:
    """A trial on a disk that may fail at any time; `write` and `flush` return how many steps were lost."""

    def __init__(self, open_trial: Callable[[], TrialWriter], note: Callable[[str], None]) -> None:
        self._open_trial, self._note = open_trial, note
        self._writer: TrialWriter | None = None
        self._not_before = 0.0
        self.last_step = -1

    def write(self, resolved: ResolvedStep, values: Mapping[str, RawCopy]) -> int:
        writer = self._open()
        if writer is None:
            return 1
        step = resolved.step
        try:
            if values:
                writer.save_values(step.number, {name: raw.fetch() for name, raw in values.items()})
            writer.append(step)
            if resolved.histograms is not None:
                writer.append_histograms(step, resolved.histogram_places, resolved.histograms)
        except Exception as error:
            return self._note_failure(error)
        self.last_step = step.number
        return 0

    def flush(self) -> int:
        try:
            if self._writer is not None:
                self._writer.flush()
        except Exception as error:
            return self._note_failure(error)
        return 0

    def close(self, dropped: int) -> None:
        if self._writer is None:
            return
        try:
            self._writer.note_dropped(max(dropped - self._writer.state.dropped, 0))
            self._writer.close()
        except Exception as error:
            self._note_failure(error)

    def _open(self) -> TrialWriter | None:
        if self._writer is None and time.monotonic() >= self._not_before:
            try:
                self._writer = self._open_trial()
            except Exception as error:
                self._not_before = time.monotonic() + _REOPEN_DELAY_S
                self._note_failure(error)
        return self._writer

    def _note_failure(self, error: Exception) -> int:
        if not isinstance(error, OSError):
            log.warning("tensors could not be written", exc_info=True)
        self._note(f"Tensors could not be written and are dropped until this is fixed; training continues: {error}.")
        return 1


def _wait_until_ready(step: OpenStep) -> None:
    deadline = time.monotonic() + _DEVICE_TIMEOUT_S
    while not step.is_ready and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_S)
