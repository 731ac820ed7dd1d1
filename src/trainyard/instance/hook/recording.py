"""What every framework's adapter hands its steps to: it knows what is asked for, and gets it written and judged."""

import logging
import os
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainyard.formats.tensors.contract import Kind, Mode, Step, TensorInfo
from trainyard.formats.tensors.writing import TrialWriter
from trainyard.instance.hook import process
from trainyard.instance.hook.collecting import Choice, Saved
from trainyard.instance.hook.configuration import HookConfig, Workers
from trainyard.instance.hook.contract import Audience
from trainyard.instance.hook.steps import OpenStep, Raw, row_of
from trainyard.instance.hook.tables import GrowingTable
from trainyard.instance.hook.throttle import Throttle
from trainyard.instance.hook.workers import Worker, this_worker
from trainyard.instance.hook.writing import StepWriter
from trainyard.link.told import ToldKind

log = logging.getLogger(__name__)

SCALAR = "scalar/"
REDUCTION = "smdebug/reductions/{}/{}"
_ALWAYS = frozenset({Kind.SCALAR, Kind.CUSTOM})  # given by the program itself, which is asking enough


class Recording:
    """The steps of one worker. One thread at a time calls it, except for `note` and `close`.

    It is what `contract.StepRecording` describes; the methods below that are for adapters which reduce tensors
    themselves, as torch's does. Everything that fails inside ends the recording and is noted; nothing is raised.
    """

    def __init__(self, config: HookConfig, audience: Audience | None = None, *, worker: Worker | None = None) -> None:
        self.config, self.audience = config, audience or Audience()
        self.selection = config.selection(self.audience.wants)
        self.table = GrowingTable(self.selection)
        self.throttle = Throttle(config.budget)
        self.open_step: OpenStep | None = None
        self.is_off = False
        self._worker = worker
        self._writer: StepWriter | None = None
        self._number, self._mode_steps = 0, dict.fromkeys(Mode, 0)
        self._has_begun = False
        self._noted: set[str] = set()
        process.bind(self)

    @property
    def worker(self) -> Worker:
        """Which process this is: asked when the first step begins, as only then all of it may be set up."""
        if self._worker is None:
            self._worker = this_worker(os.environ)
        return self._worker

    @property
    def is_writing(self) -> bool:
        """Whether this worker is one of those whose tensors are kept."""
        return self._all_write or self.worker.rank == 0

    @property
    def _all_write(self) -> bool:
        return self.config.workers is Workers.ALL or self.audience.needs_all_workers

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
        if kind in _ALWAYS:
            return True
        choice = self.selection.choice(name)
        return self.is_taken(choice, step) or not step.due.isdisjoint(choice.included)

    def give(self, name: str, value: ArrayLike, *, kind: Kind = Kind.CUSTOM, module: str = "") -> None:
        if self.open_step is None or self.is_off:
            return
        try:
            self._give(self.open_step, name, np.asarray(value), kind=kind, module=module)
        except Exception as error:
            self.fail(error)

    def give_scalar(self, name: str, value: float, *, kind: Kind = Kind.SCALAR) -> None:
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
        self._number += 1
        self._mode_steps[step.mode] += 1
        self._opened_writer().submit(step, self.table.current)

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

    def forget(self) -> None:
        """This is a forked child: it has no thread to write with, and the files are its parent's."""
        self.is_off, self.open_step, self._writer = True, None, None

    def fail(self, error: BaseException) -> None:
        """Capture ends here; training goes on."""
        self.is_off, self.open_step = True, None
        log.warning("the hook has failed and captures no more", exc_info=error)
        self.note(f"The hook has failed and captures no more; training goes on: {_told(error)}.")

    def note(self, text: str) -> None:
        """Tell the user something, once."""
        key = text.partition(":")[0]
        if key in self._noted:
            return
        self._noted.add(key)
        if self.audience.tell is not None:
            self.audience.tell(ToldKind.NOTE, {"text": text})
        else:
            log.warning("%s", text)

    def relabel(self, mode: Mode) -> None:
        """The open step turns out to be one of another mode."""
        if self.open_step is not None and self.open_step.mode is not mode:
            self.open_step.mode, self.open_step.mode_step = mode, self._mode_steps[mode]
            self.open_step.due = self.selection.due(mode, self._mode_steps[mode]) if self.is_writing else frozenset()

    def is_taken(self, choice: Choice, step: OpenStep) -> bool:
        """Whether the statistics of a tensor are taken in a step; counts it as lacking where the budget says no."""
        if not choice.is_followed:
            return False
        if step.is_full or not step.due.isdisjoint(choice.included):
            return True
        step.lacks += 1
        return False

    def saved(self, choice: Choice, step: OpenStep) -> Saved | None:
        """What is saved of a tensor in a step; None is nothing."""
        return self.selection.saved(choice, step.due) if step.due else None

    def keep_raw(self, step: OpenStep, name: str, raw: Raw) -> None:
        """Save a tensor's values with the step, unless too much is waiting already."""
        if self.has_room(step, raw.size_bytes):
            step.values[name] = raw

    def has_room(self, step: OpenStep, size_bytes: int) -> bool:
        """Whether a tensor of this size may be kept; it is noted when one is not."""
        has_room = self._opened_writer().has_room(size_bytes, held=step.size_bytes)
        if not has_room:
            self.note(
                "Raw tensors are asked for faster than they can be written, and some are dropped: save them rarer."
            )
        return has_room

    def set_scalar(self, step: OpenStep, name: str, value: float, *, kind: Kind) -> None:
        """A number that is known at once."""
        choice = self.selection.choice(name)
        place = self.table.place(name)
        if place is None:
            (place,) = self.table.add([TensorInfo(name, kind, (), "float64")])
        step.numbers[place] = value
        if kind in _ALWAYS or not step.due.isdisjoint(choice.included):
            step.saved.add(place)
        if kind is Kind.LOSS and self.throttle.see_loss(value):
            step.is_full = True

    def _begin(self, mode: Mode) -> None:
        if not self.is_writing and not self.audience.subscribers:
            self.is_off = True
            return
        if not self._has_begun:
            self._go_on()
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

    def _go_on(self) -> None:
        """Count on where an interrupted training had come to: its steps stay, and none has the number of another."""
        self._has_begun = True
        reached = self.audience.reached.get(self.worker.name)
        if reached is not None:
            self._number, self._mode_steps = reached.steps, self._mode_steps | dict(reached.mode_steps)

    def _give(self, step: OpenStep, name: str, value: NDArray[Any], *, kind: Kind, module: str) -> None:
        choice = self.selection.choice(name)
        saved = self.saved(choice, step)
        if kind in _ALWAYS and self.is_writing:
            saved = saved or Saved(is_raw=True)
        if saved is None and not self.is_taken(choice, step):
            return
        if value.dtype.kind in "USO":
            self._give_text(step, name, value, kind=kind)
            return
        (place,) = self.table.add([TensorInfo(name, kind, value.shape, value.dtype.name, module=module)])
        self.fit(step, place, value.shape)
        step.rows[place] = row_of(value)
        if saved is None:
            return
        step.saved.add(place)
        for word in saved.extras:
            self.keep_raw(step, REDUCTION.format(word, name), _fixed(np.array(_extra(word, value))))
        if saved.is_raw:
            self.keep_raw(step, name, _fixed(value.copy()))

    def _give_text(self, step: OpenStep, name: str, value: NDArray[Any], *, kind: Kind) -> None:
        """Text has no statistics: it is saved as the bytes of its UTF-8, padded with zeros to a matrix of them."""
        (place,) = self.table.add([TensorInfo(name, kind, value.shape, "str")])
        encoded = np.char.encode(value.astype(str).ravel(), "utf-8")
        width = max(encoded.dtype.itemsize, 1)
        matrix = np.frombuffer(encoded.tobytes(), np.uint8).reshape(len(encoded), width).copy()
        step.saved.add(place)
        self.keep_raw(step, name, _fixed(matrix))

    def fit(self, step: OpenStep, place: int, shape: Iterable[int]) -> None:
        """A tensor may have another shape than when it was first seen: statistics are then told for the first size.

        One that had a single element then is described anew, as only such tensors have their exact value kept.
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

    def _opened_writer(self) -> StepWriter:
        if self._writer is None:
            self._writer = StepWriter(
                self.worker.name,
                open_trial=self._open_trial if self.is_writing else None,
                subscribers=self.audience.subscribers,
                note=self.note,
                progress=self._tell_progress,
                see=self._see,
            )
        return self._writer

    def _open_trial(self) -> TrialWriter:
        return TrialWriter(
            self.config.folder,
            worker=self.worker.name,
            workers=self.worker.size if self._all_write else 1,
            collections=[each.info for each in self.config.collections],
        )

    def _tell_progress(self, step: int, dropped: int) -> None:
        if self.audience.tell is not None:
            payload = {"worker": self.worker.name, "step": step, "dropped": dropped}
            self.audience.tell(ToldKind.PROGRESS, payload | {"overhead": round(self.throttle.overhead, 4), "note": ""})

    def _see(self, step: Step, open_step: OpenStep) -> None:
        """What only now arrives from a device: its losses, and how long it worked."""
        for position, place in enumerate(step.table.scalars):
            if step.table.tensors[place].kind is Kind.LOSS and place not in open_step.numbers:
                self.throttle.see_loss(float(step.scalars[position]))
        for device_ns in open_step.device_ns:
            self.throttle.spend_on_device(device_ns())


def _fixed(array: NDArray[Any]) -> Raw:
    return Raw(array.nbytes, lambda: array)


def _extra(word: str, value: NDArray[Any]) -> float:
    """A reduction that needs the values: prod, abs_prod or abs_min."""
    if not value.size:
        return np.nan
    if word == "abs_min":
        return float(np.abs(value).min())
    return float((np.abs(value) if word == "abs_prod" else value).prod(dtype=np.float64))


def _told(error: BaseException) -> str:
    """An exception in a line, with the place where it came up."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
