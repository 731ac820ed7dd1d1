"""Records the steps of a framework's adapter: decides what to keep, and passes it to the writer and the rules."""

import logging
import os
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainyard.formats.tensors.contract import Kind, Mode, Step, TensorInfo
from trainyard.formats.tensors.recordings.live_writers import add_writer, remove_writer
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter
from trainyard.instance.hook import process
from trainyard.instance.hook.configuration import HookConfig, Workers
from trainyard.instance.hook.contract import HookContext, StepObserver
from trainyard.instance.hook.growing_table import GrowingTable
from trainyard.instance.hook.selection import SaveRequest, TensorSettings
from trainyard.instance.hook.step_writer import StepWriter
from trainyard.instance.hook.steps import OpenStep, RawCopy, row_of
from trainyard.instance.hook.throttle import Throttle
from trainyard.instance.hook.worker import WorkerRank, current_rank
from trainyard.link.event_protocol import AgentEventKind

log = logging.getLogger(__name__)

SCALAR_PREFIX = "scalar/"
REDUCTION_NAME = "smdebug/reductions/{}/{}"
# Saved always, because the program itself provides them.
_ALWAYS_SAVED = frozenset({Kind.SCALAR, Kind.CUSTOM})


class HookRecording:
    """Records the steps of one worker. Called by one thread at a time, except for `note` and `close`.

    It implements `contract.StepRecording`. The methods from `relabel` on are for adapters that reduce tensors
    themselves, as the torch adapter does. Any failure ends the recording and is noted; nothing is raised.

    `before_flush` is called when a reader in this process wants every finished step: an adapter that keeps finished
    steps open can finish them then.
    """

    def __init__(
        self, config: HookConfig, context: HookContext | None = None, *, worker: WorkerRank | None = None
    ) -> None:
        self.config, self.context = config, context or HookContext()
        self.selection = config.selection(self.context.requests)
        self.table = GrowingTable(self.selection)
        self.throttle = Throttle(config.budget)
        self.open_step: OpenStep | None = None
        self.is_off = False
        self._worker = worker
        self._writer: StepWriter | None = None
        self._number, self._mode_steps = 0, dict.fromkeys(Mode, 0)
        self._has_begun = False
        self._noted: set[str] = set()
        self._last: OpenStep | None = None
        self.before_flush: Callable[[], None] = lambda: None
        process.bind(self)

    @property
    def worker(self) -> WorkerRank:
        """The rank of this process, read when the first step begins: the launcher may not be set up earlier."""
        if self._worker is None:
            self._worker = current_rank(os.environ)
        return self._worker

    @property
    def is_writing(self) -> bool:
        """Whether this worker writes its tensors."""
        return self._all_write or self.worker.rank == 0

    @property
    def _all_write(self) -> bool:
        return self.config.workers is Workers.ALL or self.context.needs_all_workers

    @property
    def dropped(self) -> int:
        return self._writer.dropped if self._writer else 0

    def begin(self, mode: Mode) -> None:
        if self.is_off:
            return
        try:
            self.finish()
            self._begin(mode)
        except Exception as error:
            self.fail(error)

    def is_wanted(self, name: str, kind: Kind) -> bool:
        step = self.open_step
        if step is None or self.is_off:
            return False
        if kind in _ALWAYS_SAVED:
            return True
        settings = self.selection.settings(name)
        return self.is_observed(settings, step) or not step.due.isdisjoint(settings.included)

    def observe(self, name: str, value: ArrayLike, *, kind: Kind = Kind.CUSTOM, module: str = "") -> None:
        if self.open_step is None or self.is_off:
            return
        try:
            self._observe(self.open_step, name, np.asarray(value), kind=kind, module=module)
        except Exception as error:
            self.fail(error)

    def observe_scalar(self, name: str, value: float, *, kind: Kind = Kind.SCALAR) -> None:
        if self.open_step is None or self.is_off:
            return
        try:
            self.set_scalar(self.open_step, name, float(value), kind=kind)
        except Exception as error:
            self.fail(error)

    def finish(self) -> None:
        step, self.open_step = self.open_step, None
        if step is None or self.is_off:
            return
        if not step.amends:
            self._number += 1
            self._mode_steps[step.mode] += 1
        self._last = step if step.may_be_amended else None
        self._ensure_writer().submit(step, self.table.current)

    def flush(self) -> None:
        """Write all finished steps now. Any thread may call it; `before_flush` must allow for that."""
        self.before_flush()
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        process.release(self)
        if not self.is_off:
            try:
                self.finish()
            except Exception as error:
                self.fail(error)
        self.is_off = True
        if self._writer is not None:
            self._writer.close()
        remove_writer(self.config.folder, self)

    def forget(self) -> None:
        """Stop without writing, in a forked child: its writer thread is gone, and the files are its parent's."""
        self.is_off, self.open_step, self._writer = True, None, None
        remove_writer(self.config.folder, self)

    def fail(self, error: BaseException) -> None:
        """Stop capturing after an error; the training continues."""
        self.is_off, self.open_step = True, None
        log.warning("the hook has failed and stopped capturing", exc_info=error)
        self.note(f"The hook has failed and stopped capturing; training continues: {_describe_error(error)}.")

    def note(self, text: str) -> None:
        """Send the user a message, once."""
        key = text.partition(":")[0]
        if key in self._noted:
            return
        self._noted.add(key)
        if self.context.send_event is not None:
            self.context.send_event(AgentEventKind.NOTE, {"text": text})
        else:
            log.warning("%s", text)

    def reopen(self) -> OpenStep | None:
        """Open the last step again if it may be amended, and return it: what it gets now is added to what it had."""
        last, self._last = self._last, None
        if last is not None and self.open_step is None:
            self.open_step = OpenStep(
                last.number,
                last.mode,
                last.mode_step,
                last.at_us,
                last.due,
                last.is_full,
                calls=last.calls,
                may_be_amended=True,
                amends=True,
            )
        return self.open_step

    def relabel(self, mode: Mode) -> None:
        """Change the mode of the open step."""
        if self.open_step is not None and self.open_step.mode is not mode:
            self.open_step.mode, self.open_step.mode_step = mode, self._mode_steps[mode]
            self.open_step.due = self.selection.due(mode, self._mode_steps[mode]) if self.is_writing else frozenset()

    def is_observed(self, settings: TensorSettings, step: OpenStep) -> bool:
        """Whether to reduce a tensor in this step. One that the budget excludes is counted as lacking."""
        if not settings.is_tracked:
            return False
        if step.is_full or not step.due.isdisjoint(settings.included):
            return True
        step.lacks += 1
        return False

    def save_request(self, settings: TensorSettings, step: OpenStep) -> SaveRequest | None:
        """Return what to save of a tensor in this step, or None for nothing."""
        return self.selection.save_request(settings, step.due) if step.due else None

    def keep_raw(self, step: OpenStep, name: str, raw: RawCopy) -> None:
        """Save a tensor's values with the step, unless the queue is full."""
        if self.has_room(step, raw.size_bytes):
            step.values[name] = raw

    def has_room(self, step: OpenStep, size_bytes: int) -> bool:
        """Whether the queue has room for a tensor of this size; note it if not."""
        has_room = self._ensure_writer().has_room(size_bytes, held=step.size_bytes)
        if not has_room:
            self.note("Raw tensors arrive faster than they can be written, and some are dropped: save them less often.")
        return has_room

    def set_scalar(self, step: OpenStep, name: str, value: float, *, kind: Kind) -> None:
        """Record a number that is known right away."""
        settings = self.selection.settings(name)
        place = self.table.place(name)
        if place is None:
            (place,) = self.table.add([TensorInfo(name, kind, (), "float64")])
        step.numbers[place] = value
        if kind in _ALWAYS_SAVED or not step.due.isdisjoint(settings.included):
            step.saved.add(place)
        if kind is Kind.LOSS and self.throttle.observe_loss(value):
            step.is_full = True

    def _begin(self, mode: Mode) -> None:
        if not self.is_writing and not self.context.subscribers:
            self.is_off = True
            return
        self._last = None
        if not self._has_begun:
            self._resume()
            add_writer(self.config.folder, self)
        now_ns = time.perf_counter_ns()
        mode_step = self._mode_steps[mode]
        self.open_step = OpenStep(
            number=self._number,
            mode=mode,
            mode_step=mode_step,
            at_us=time.time_ns() // 1000,
            due=self.selection.due(mode, mode_step) if self.is_writing else frozenset(),
            is_full=self.throttle.begin(now_ns),
        )

    def _resume(self) -> None:
        """Continue the step count of an interrupted training, so that no two steps share a number."""
        self._has_begun = True
        point = self.context.resume_points.get(self.worker.name)
        if point is not None:
            self._number, self._mode_steps = point.steps, self._mode_steps | dict(point.mode_steps)

    def _observe(self, step: OpenStep, name: str, value: NDArray[Any], *, kind: Kind, module: str) -> None:
        settings = self.selection.settings(name)
        saved = self.save_request(settings, step)
        if kind in _ALWAYS_SAVED and self.is_writing:
            saved = saved or SaveRequest(is_raw=True)
        if saved is None and not self.is_observed(settings, step):
            return
        if value.dtype.kind in "USO":
            self._observe_text(step, name, value, kind=kind)
            return
        (place,) = self.table.add([TensorInfo(name, kind, value.shape, value.dtype.name, module=module)])
        self.fit(step, place, value.shape)
        step.rows[place] = row_of(value)
        if saved is None:
            return
        step.saved.add(place)
        for word in saved.extras:
            self.keep_raw(step, REDUCTION_NAME.format(word, name), _raw_array(np.array(_extra(word, value))))
        if saved.is_raw:
            self.keep_raw(step, name, _raw_array(value.copy()))

    def _observe_text(self, step: OpenStep, name: str, value: NDArray[Any], *, kind: Kind) -> None:
        """Save text, which has no statistics, as a matrix of its UTF-8 bytes padded with zeros."""
        (place,) = self.table.add([TensorInfo(name, kind, value.shape, "str")])
        encoded = np.char.encode(value.astype(str).ravel(), "utf-8")
        width = max(encoded.dtype.itemsize, 1)
        matrix = np.frombuffer(encoded.tobytes(), np.uint8).reshape(len(encoded), width).copy()
        step.saved.add(place)
        self.keep_raw(step, name, _raw_array(matrix))

    def fit(self, step: OpenStep, place: int, shape: Iterable[int]) -> None:
        """Note the size of a tensor whose shape differs from the table's, so that its statistics are scaled to fit.

        A tensor that had a single element at first is described anew: only such tensors keep their exact value.
        """
        actual = tuple(shape)
        known = self.table.current.tensors[place]
        if actual == known.shape:
            return
        size = int(np.prod(actual, dtype=np.int64))
        if known.size == 1 and size != 1:
            self.table.reshape(place, actual)
        elif size != known.size:
            step.sizes[place] = size

    def _ensure_writer(self) -> StepWriter:
        if self._writer is None:
            self._writer = StepWriter(
                self.worker.name,
                open_trial=self._open_trial if self.is_writing else None,
                subscribers=self.context.subscribers,
                note=self.note,
                progress=self._send_progress,
                on_resolved=self._update_throttle,
            )
        return self._writer

    def _open_trial(self) -> TrialWriter:
        return TrialWriter(
            self.config.folder,
            worker=self.worker.name,
            workers=self.worker.size if self._all_write else 1,
            collections=[each.info for each in self.config.collections],
        )

    def _send_progress(self, step: int, dropped: int) -> None:
        if self.context.send_event is not None:
            payload = {"worker": self.worker.name, "step": step, "dropped": dropped}
            self.context.send_event(
                AgentEventKind.PROGRESS, payload | {"overhead": round(self.throttle.overhead, 4), "note": ""}
            )

    def _update_throttle(self, step: Step, open_step: OpenStep) -> None:
        """Pass on what only now arrived from a device: its losses, and how long it was busy."""
        for position, place in enumerate(step.table.scalars):
            if step.table.tensors[place].kind is Kind.LOSS and place not in open_step.numbers:
                self.throttle.observe_loss(float(step.scalars[position]))
        for device_ns in open_step.device_ns:
            self.throttle.spend_on_device(device_ns())


class StepObservers:
    """The observers of a recording. One that fails is noted and removed."""

    def __init__(self, recording: HookRecording) -> None:
        self._observers = list(recording.context.observers)
        self._note = recording.note

    def __bool__(self) -> bool:
        return bool(self._observers)

    def notify(self, call: Callable[[StepObserver], None]) -> None:
        for observer in list(self._observers):
            try:
                call(observer)
            # Whatever failed, the training must continue.
            except Exception as error:
                self._observers.remove(observer)
                self._note(f"{type(observer).__name__} has failed and observes no more steps: {error!r}.")


def _raw_array(array: NDArray[Any]) -> RawCopy:
    return RawCopy(array.nbytes, lambda: array)


def _extra(word: str, value: NDArray[Any]) -> float:
    """Compute a reduction that needs the values: prod, abs_prod or abs_min."""
    if not value.size:
        return np.nan
    if word == "abs_min":
        return float(np.abs(value).min())
    return float((np.abs(value) if word == "abs_prod" else value).prod(dtype=np.float64))


def _describe_error(error: BaseException) -> str:
    """Return an exception as one line, with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
