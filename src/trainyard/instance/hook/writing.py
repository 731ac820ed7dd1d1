"""The thread that turns steps into numbers, tells them to those who follow, and writes them.

The thread that trains hands steps over and never waits: when too many are underway, or too many bytes of raw tensors, a
step or its tensors are dropped and counted. A disk that is full or gone costs the steps of that time, and nothing else.
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
from trainyard.formats.tensors.writing import TrialWriter
from trainyard.instance.hook.steps import OpenStep, Raw, Resolved, Resolver

log = logging.getLogger(__name__)

MOST_STEPS = 512  # that wait
MOST_RAW_BYTES = 2 << 30  # of raw tensors that wait
_FLUSH_S = 1.0
_POLL_S = 0.005  # each look takes the interpreter from the thread that trains
_PATIENCE_S = 60.0  # with a device that does not finish a step
_AGAIN_S = 5.0  # before a folder that could not be opened is tried again


class StepWriter:
    """Owns the thread, which starts with the first step. `submit` and `has_room` are called by the one that trains.

    `note` is told, once each, what a user should know; `progress` now and then how far the writing is, and `see` every
    step that was resolved, with what it was before. None of them may raise.
    """

    def __init__(
        self,
        worker: str,
        *,
        open_trial: Callable[[], TrialWriter] | None,
        subscribers: Sequence[StepSubscriber] = (),
        note: Callable[[str], None] = log.warning,
        progress: Callable[[int, int], None] = lambda _step, _dropped: None,
        see: Callable[[Step, OpenStep], None] = lambda _step, _open_step: None,
    ) -> None:
        self._resolver = Resolver(worker)
        self._trial = _Trial(open_trial, note) if open_trial else None
        self._subscribers = list(subscribers)
        self._note, self._progress, self._see = note, progress, see
        self._waiting: SimpleQueue[tuple[OpenStep, TensorTable] | None] = SimpleQueue()  # None is the end
        self._raw_bytes = 0
        self._raw_lock = Lock()
        self._is_closing = False
        self._thread: Thread | None = None
        self.dropped = 0

    def has_room(self, size_bytes: int, *, held: int) -> bool:
        """Whether so many bytes of raw tensors may wait besides those that a step holds; the first always may."""
        waiting = self._raw_bytes + held
        return not waiting or waiting + size_bytes <= MOST_RAW_BYTES

    def submit(self, step: OpenStep, table: TensorTable) -> None:
        if self._is_closing or self._waiting.qsize() >= MOST_STEPS:
            self.dropped += 1
            return
        if step.values:
            self._count_raw(step.size_bytes)
        self._waiting.put((step, table))
        if self._thread is None:
            self._thread = Thread(target=self._run, name="trainyard-hook", daemon=True)
            self._thread.start()

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what waits, and the end. Does not return before that is done or the time is over."""
        if not self._is_closing:
            self._is_closing = True
            self._waiting.put(None)
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        flushed_at = time.monotonic()
        while True:
            with contextlib.suppress(Empty):
                taken = self._waiting.get(timeout=max(flushed_at + _FLUSH_S - time.monotonic(), 0))
                if taken is None:
                    break
                self._handle(*taken)
            if time.monotonic() - flushed_at >= _FLUSH_S:
                flushed_at = time.monotonic()
                self._flush()
        self._end()

    def _handle(self, step: OpenStep, table: TensorTable) -> None:
        try:
            resolved = self._resolved(step, table)
            if resolved is None:
                self.dropped += 1
                return
            self._see(resolved.step, step)
            self._publish(resolved)
            if self._trial is not None:
                self.dropped += self._trial.write(resolved, step.values)
                if any(isinstance(each, UrgentSubscriber) and each.takes_leave() for each in self._subscribers):
                    self._flush()
        finally:
            if step.values:
                self._count_raw(-step.size_bytes)

    def _resolved(self, step: OpenStep, table: TensorTable) -> Resolved | None:
        try:
            _wait_until_ready(step)
            return self._resolver.resolve(step, table)
        except Exception as error:
            log.warning("the numbers of a step could not be had", exc_info=True)
            self._note(f"The numbers of a step could not be had, and it is left out: {error!r}.")
            return None

    def _count_raw(self, size_bytes: int) -> None:
        with self._raw_lock:
            self._raw_bytes += size_bytes

    def _publish(self, resolved: Resolved) -> None:
        step = resolved.step
        for subscriber in list(self._subscribers):
            try:
                subscriber.take(step)
                if resolved.histograms is not None and isinstance(subscriber, HistogramSubscriber):
                    subscriber.take_histograms(step, resolved.histogram_places, resolved.histograms)
            except Exception as error:
                log.warning("a follower of steps has failed", exc_info=True)
                self._subscribers.remove(subscriber)
                self._note(
                    f"{type(subscriber).__name__} has failed at step {step.number} and is told no more: {error!r}."
                )

    def _flush(self) -> None:
        if self._trial is not None:
            self.dropped += self._trial.flush()
            self._progress(self._trial.last_step, self.dropped)

    def _end(self) -> None:
        if self._trial is not None:
            self._trial.close(self.dropped)
            self._progress(self._trial.last_step, self.dropped)
        for subscriber in self._subscribers:
            try:
                subscriber.end()
            except Exception as error:
                self._note(f"{type(subscriber).__name__} has failed at the end: {error!r}.")


class _Trial:
    """A trial on a disk that may fail at any time; every method returns how many steps that has cost."""

    def __init__(self, open_trial: Callable[[], TrialWriter], note: Callable[[str], None]) -> None:
        self._open_trial, self._note = open_trial, note
        self._writer: TrialWriter | None = None
        self._not_before = 0.0
        self.last_step = -1

    def write(self, resolved: Resolved, values: Mapping[str, Raw]) -> int:
        writer = self._opened()
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
            return self._failed(error)
        self.last_step = step.number
        return 0

    def flush(self) -> int:
        try:
            if self._writer is not None:
                self._writer.flush()
        except Exception as error:
            return self._failed(error)
        return 0

    def close(self, dropped: int) -> None:
        if self._writer is None:
            return
        try:
            self._writer.note_dropped(max(dropped - self._writer.state.dropped, 0))
            self._writer.close()
        except Exception as error:
            self._failed(error)

    def _opened(self) -> TrialWriter | None:
        if self._writer is None and time.monotonic() >= self._not_before:
            try:
                self._writer = self._open_trial()
            except Exception as error:
                self._not_before = time.monotonic() + _AGAIN_S
                self._failed(error)
        return self._writer

    def _failed(self, error: Exception) -> int:
        if not isinstance(error, OSError):
            log.warning("tensors could not be written", exc_info=True)
        self._note(f"Tensors could not be written and are dropped while this lasts; training goes on: {error}.")
        return 1


def _wait_until_ready(step: OpenStep) -> None:
    patience = time.monotonic() + _PATIENCE_S
    while not step.is_ready and time.monotonic() < patience:
        time.sleep(_POLL_S)
