"""The ring of the last steps, kept in the process that trains.

A copy of the state is made before a step, at first of every one. It is made more seldom when it would take more than
`SHARE` of the time. Between two copies, inputs and random states are kept of every step, so that each of them can be
reached again from the copy before it. A step is kept until it was judged, and as many steps longer as were asked for;
but all of it together takes no more memory than it may.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.instance.recorder.inputs import Kept, StepInputs, follow, tensors_in
from trainyard.instance.recorder.records import Record, write_record
from trainyard.instance.recorder.states import RandomState, TrainingState, group_values, settle

SHARE = 0.0025  # of the time: a quarter of what the hook as a whole may take
DEVICE_SHARE = 0.01  # of the memory of a device, that batches may be kept in
MOST_RECORDS = 3  # that are written of one run

_MOST_COPIES = 64
_LONGEST_INTERVAL = 1000
_MOST_AHEAD = 4  # batches that are fetched before a step begins

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RecordedStep:
    """One step: what went in, and what its losses were."""

    number: int
    random: RandomState
    groups: list[list[dict[str, Any]]]
    inputs: StepInputs
    losses: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    size_bytes: int = 0  # of what went in, as far as the model was called with it


@dataclass(slots=True)
class _Copy:
    """A copy of the state; one that is being written is never used again for another."""

    state: TrainingState
    is_held: bool = False


class Recorder:
    """Observes steps in the thread that trains, is told in that of the rules which steps are judged, and fires there.

    `steps` is how many judged steps are kept, `most_bytes` what all of it may take. `note` is told when it gives up.
    """

    def __init__(
        self, folder: Path, *, unfinished: Path, steps: int, most_bytes: int, note: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._unfinished = unfinished
        self._steps = steps
        self._most_bytes = most_bytes
        self._note = note
        self._lock = threading.Lock()
        self._copies: deque[_Copy] = deque()
        self._ring: deque[RecordedStep] = deque()
        self._ahead: deque[Kept] = deque(maxlen=_MOST_AHEAD)
        self._open: RecordedStep | None = None
        self._pace = _Pace()
        self._judged = -1
        self._input_bytes = 0  # of all steps in the ring
        self._most_input_bytes = most_bytes // 4
        self._written: set[int] = set()
        self._worker = "worker_0"
        self._is_off = self._is_on_device = False
        follow(batches=self._fetched, targets=self._target)

    def begin_step(self, number: int, *, mode: Mode, models: Sequence[Any], optimizers: Sequence[Any]) -> None:
        if self._is_off or mode is not Mode.TRAIN:
            self._close_step()
            return
        self._pace.begin(time.perf_counter_ns())
        with self._lock:
            is_copied = self._pace.is_due(number) or self._input_bytes > self._most_input_bytes // 2
            if is_copied:
                self._copy(number, models, optimizers)
            inputs = StepInputs(batches=list(self._ahead))
            random = RandomState.take(is_whole=is_copied)
            self._open = RecordedStep(number, random, group_values(optimizers), inputs)
            self._ring.append(self._open)
            self._forget_old()
        self._ahead.clear()

    def batch(self, _model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._open is None:
            return
        kept = Kept.of((args, dict(kwargs)))
        self._open.inputs.arguments.append(kept)
        self._count(self._open, kept)

    def loss(self, name: str, value: Any) -> None:
        if self._open is not None:
            self._open.losses.append((name, value))

    def end_step(self, _number: int) -> None:
        self._close_step()

    def take(self, step: Step) -> None:
        """A step was judged."""
        self._worker = step.worker
        if step.mode is Mode.TRAIN:
            self._judged = step.number

    def end(self) -> None:
        self._is_off = True

    def fire(self, step: int, why: str, *, wait_s: float) -> None:
        """Write what is needed to run a step again, unless that was done or is not known any more.

        It is written by a thread of its own, for which the caller waits no longer than so.
        """
        record = self._record(step, why)
        if record is None:
            return
        writing = threading.Thread(target=self._write, args=(record,), name="trainyard-record", daemon=True)
        writing.start()
        writing.join(wait_s)

    def _fetched(self, batch: Any) -> Any:
        if not self._is_off:
            (self._ahead if self._open is None else self._open.inputs.batches).append(Kept.of(batch))
        return batch

    def _target(self, target: Any) -> Any:
        if self._open is not None:
            self._open.inputs.targets.append(Kept.of(target))
        return target

    def _close_step(self) -> None:
        self._open = None
        self._ahead.clear()

    def _count(self, step: RecordedStep, kept: Kept) -> None:
        """Count what a step keeps in memory; what lies on a device may take little of that."""
        size = 0
        for tensor in tensors_in(kept.value):
            size += tensor.nbytes
            if tensor.is_cuda and not self._is_on_device:
                self._is_on_device = True
                whole = torch.cuda.get_device_properties(tensor.device).total_memory
                self._most_input_bytes = min(self._most_input_bytes, int(whole * DEVICE_SHARE))
        step.size_bytes += size
        self._input_bytes += size
        if step.size_bytes > self._most_input_bytes:
            self._give_up(f"what goes into one step takes {step.size_bytes >> 20} MiB")

    def _copy(self, number: int, models: Sequence[Any], optimizers: Sequence[Any]) -> None:
        began = time.perf_counter_ns()
        old = self._copies.popleft() if len(self._copies) >= self._most_copies else None
        state = TrainingState() if old is None or old.is_held else old.state
        state.take(number, models, optimizers)
        self._copies.append(_Copy(state))
        self._pace.copied(number, time.perf_counter_ns() - began)
        if 2 * state.size_bytes > self._most_bytes:
            self._give_up(f"two copies of the model and its optimizer take {2 * state.size_bytes >> 20} MiB")

    @property
    def _most_copies(self) -> int:
        if not self._copies:
            return 2
        size = max(self._copies[-1].state.size_bytes, 1)
        return max(2, min(_MOST_COPIES, self._most_bytes // (2 * size)))

    def _forget_old(self) -> None:
        """Forget copies that no kept step needs, and the steps before the first copy that is left."""
        kept_from = self._judged - self._steps + 1
        while len(self._copies) > 2 and self._copies[1].state.step <= kept_from:
            self._copies.popleft()
        self._forget_steps()
        while len(self._copies) > 1 and self._input_bytes > self._most_input_bytes:
            self._copies.popleft()
            self._forget_steps()

    def _forget_steps(self) -> None:
        while self._ring and (not self._copies or self._ring[0].number < self._copies[0].state.step):
            self._input_bytes -= self._ring.popleft().size_bytes

    def _give_up(self, why: str) -> None:
        self._is_off = True
        self._copies.clear()
        self._ring.clear()
        self._open = None
        self._note(f"The flight recorder is off: {why}, and it may take {self._most_bytes >> 20} MiB of memory in all.")

    def _record(self, step: int, why: str) -> Record | None:
        with self._lock:
            copies = [each for each in self._copies if each.state.step <= step]
            if self._is_off or not copies or step in self._written or len(self._written) >= MOST_RECORDS:
                return None
            first = copies[-1].state.step
            steps = [each for each in self._ring if first <= each.number <= step]
            if not steps or steps[-1].number != step:
                return None
            copies[-1].is_held = True
            self._written.add(step)
            return Record(self._worker, step, why, copies[-1].state, tuple(steps))

    def _write(self, record: Record) -> None:
        try:
            settle()
            write_record(self._folder, record, unfinished=self._unfinished)
        except Exception as error:  # of a full disk, or of a batch that cannot be written
            log.warning("a step could not be recorded", exc_info=True)
            self._note(f"Step {record.step} of {record.worker} is not recorded: {error}.")


class _Pace:
    """How often a copy may be made, from what one takes and how long a step is."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._step_ns = 0.0
        self._copy_ns = 0.0
        self._copied_at: int | None = None

    def begin(self, now_ns: int) -> None:
        if self._began_ns:
            took = now_ns - self._began_ns
            self._step_ns += (0.1 if self._step_ns else 1.0) * (took - self._step_ns)
        self._began_ns = now_ns

    def is_due(self, number: int) -> bool:
        return self._copied_at is None or number < self._copied_at or number - self._copied_at >= self._interval

    def copied(self, number: int, took_ns: int) -> None:
        # What the first one takes is mostly new memory.
        is_first = self._copied_at is None
        self._copied_at = number
        if not is_first:
            self._copy_ns += (0.2 if self._copy_ns else 1.0) * (took_ns - self._copy_ns)

    @property
    def _interval(self) -> int:
        if not self._step_ns or not self._copy_ns:
            return 1
        return min(_LONGEST_INTERVAL, max(1, math.ceil(self._copy_ns / (SHARE * self._step_ns))))
