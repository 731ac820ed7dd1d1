"""The writer thread: it resolves the numbers of steps, publishes them to subscribers, and writes them.

The training thread queues steps and never waits: if the queue holds too many steps, or too many bytes of raw tensors, a
step or its tensors are dropped and counted. A disk that is full or unavailable costs the steps of that time, nothing
else.
"""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread, current_thread

from trainyard.formats.tensors.contract import (
    HistogramSubscriber,
    Step,
    StepSubscriber,
    TensorTable,
    UrgentSubscriber,
)
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter
from trainyard.instance.hook.flush_schedule import MIN_DELAY_S, FlushSchedule
from trainyard.instance.hook.steps import OpenStep, RawCopy, ResolvedStep, StepResolver, amend

log = logging.getLogger(__name__)

MAX_QUEUED_STEPS = 512
MAX_QUEUED_RAW_BYTES = 2 << 30
# Between two reports of progress, in the manifest and to `progress`.
_REPORT_INTERVAL_S = 1.0
# How long a reader waits for the writer thread, which may wait for a device.
_FLUSH_TIMEOUT_S = 5.0
# Not shorter, as each poll takes the interpreter lock from the training thread.
_POLL_INTERVAL_S = 0.005
_DEVICE_TIMEOUT_S = 60.0
_REOPEN_DELAY_S = 5.0


@dataclass(slots=True)
class _AmendableStep:
    """A step to which the program may still add, with all its values so far.

    What is added soon costs nothing: until `due_at`, the step is not written. What is added later is written again.
    """

    resolved: ResolvedStep
    values: Mapping[str, RawCopy]
    has_new_values: bool
    is_written: bool = False
    due_at: float = field(default_factory=lambda: time.monotonic() + MIN_DELAY_S)

    def amend(self, addition: ResolvedStep, values: Mapping[str, RawCopy]) -> None:
        self.resolved = amend(self.resolved, addition)
        self.has_new_values = bool(values) or (self.has_new_values and not self.is_written)
        self.values = {**self.values, **values}
        self.is_written = False


class StepWriter:
    """Owns the writer thread, which starts with the first step. The training thread calls `submit` and `has_room`.

    A step that may be amended is written soon, but subscribers get it when it can no longer change: when the next step
    arrives.

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
        # None marks the end, an event a request to flush.
        self._queue: SimpleQueue[tuple[OpenStep, TensorTable] | Event | None] = SimpleQueue()
        self._schedule = FlushSchedule()
        self._reported_at, self._is_report_due = -math.inf, False
        self._amendable: _AmendableStep | None = None
        self._submitted, self._flushed = 0, 0
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
        self._submitted += 1
        self._queue.put((step, table))
        if self._thread is None:
            self._thread = Thread(target=self._run, name="trainyard-hook", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Write all submitted steps now. Returns when that is done, or when the writer takes too long."""
        if self._thread is None or self._thread is current_thread() or self._flushed == self._submitted:
            return
        if self._is_closing:
            self._thread.join(_FLUSH_TIMEOUT_S)
            return
        is_flushed = Event()
        self._queue.put(is_flushed)
        is_flushed.wait(_FLUSH_TIMEOUT_S)

    def close(self, timeout_s: float = 10.0) -> None:
        """Write the queued steps and mark the end. Returns when that is done or `timeout_s` has passed."""
        if not self._is_closing:
            self._is_closing = True
            self._queue.put(None)
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        handled = 0
        while True:
            with contextlib.suppress(Empty):
                queued = self._queue.get(timeout=self._patience_s())
                if queued is None:
                    break
                if isinstance(queued, Event):
                    self._write_amendable()
                    self._flush(handled)
                    queued.set()
                else:
                    handled += 1
                    self._handle(*queued)
            if time.monotonic() >= self._amendable_due_at:
                self._write_amendable()
            if self._patience_s() == 0:
                self._flush(handled)
        self._end()
        self._release_readers()

    def _patience_s(self) -> float | None:
        """Return how long to wait for the next step before something else is due; None for any time."""
        report_at = self._reported_at + _REPORT_INTERVAL_S if self._is_report_due else math.inf
        due_at = min(self._schedule.due_at, self._amendable_due_at, report_at)
        return None if due_at == math.inf else max(due_at - time.monotonic(), 0)

    def _handle(self, step: OpenStep, table: TensorTable) -> None:
        try:
            resolved = self._resolve(step, table)
            if resolved is None:
                self.dropped += 1
                return
            self._on_resolved(resolved.step, step)
            if step.amends and self._amendable is not None and self._amendable.resolved.step.number == step.number:
                self._amendable.amend(resolved, step.values)
            else:
                self._complete()
                self._amendable = _AmendableStep(resolved, step.values, has_new_values=bool(step.values))
            if not step.may_be_amended:
                self._complete()
        finally:
            if step.values:
                self._count_raw(-step.size_bytes)

    @property
    def _amendable_due_at(self) -> float:
        return math.inf if self._amendable is None or self._amendable.is_written else self._amendable.due_at

    def _complete(self) -> None:
        """Publish the amendable step, which does not change any more, and write it if that is not done."""
        if self._amendable is None:
            return
        self._publish(self._amendable.resolved)
        if any(isinstance(each, UrgentSubscriber) and each.needs_flush() for each in self._subscribers):
            self._schedule.expedite()
        self._write_amendable()
        self._amendable = None

    def _write_amendable(self) -> None:
        step = self._amendable
        if step is None or step.is_written:
            return
        if self._output is not None:
            self.dropped += self._output.write(step.resolved, step.values if step.has_new_values else {})
        step.is_written = True
        self._schedule.add_step(time.monotonic())

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

    def _flush(self, handled: int) -> None:
        """Write all steps handled so far."""
        started = time.monotonic()
        if self._output is not None:
            self.dropped += self._output.flush()
        is_held = self._amendable is not None and not self._amendable.is_written
        self._flushed = handled - is_held
        now = time.monotonic()
        self._schedule.record_flush(now - started)
        self._is_report_due = self._output is not None
        if self._output is not None and now - self._reported_at >= _REPORT_INTERVAL_S:
            self._reported_at, self._is_report_due = now, False
            self.dropped += self._output.report()
            self._progress(self._output.last_step, self.dropped)

    def _release_readers(self) -> None:
        """Wake readers whose requests came after the end."""
        with contextlib.suppress(Empty):
            while True:
                left = self._queue.get_nowait()
                if isinstance(left, Event):
                    left.set()

    def _end(self) -> None:
        self._complete()
        if self._output is not None:
            self._output.close(self.dropped)
            self._progress(self._output.last_step, self.dropped)
        for subscriber in self._subscribers:
            try:
                subscriber.end()
            except Exception as error:
                self._note(f"{type(subscriber).__name__} has failed at the end: {error!r}.")


class _TrialOutput:
    """A trial on a disk that may fail at any time. `write`, `flush` and `report` return how many times it did."""

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
        return self._attempt(TrialWriter.flush)

    def report(self) -> int:
        return self._attempt(TrialWriter.report)

    def close(self, dropped: int) -> None:
        if self._writer is None:
            return
        try:
            self._writer.note_dropped(max(dropped - self._writer.state.dropped, 0))
            self._writer.close()
        except Exception as error:
            self._note_failure(error)

    def _attempt(self, work: Callable[[TrialWriter], None]) -> int:
        try:
            if self._writer is not None:
                work(self._writer)
        except Exception as error:
            return self._note_failure(error)
        return 0

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
