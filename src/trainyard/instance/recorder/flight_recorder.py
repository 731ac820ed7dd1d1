"""The ring of the last steps, kept in the process that trains.

The state is copied before a step: before each step at first, and less often once that would take more than
`MAX_TIME_SHARE` of the time. Between two copies, the inputs and random states of every step are kept, so that each step
can be replayed from the copy before it. A step is kept until the rules have evaluated it, and then for as many steps as
configured; but all of it together never takes more memory than allowed.
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
from trainyard.instance.recorder.inputs import InputValue, StepInputs, intercept_inputs, tensors_in
from trainyard.instance.recorder.records import FlightRecord, write_record
from trainyard.instance.recorder.states import RandomState, TrainingState, group_values, synchronize_devices

# Of the training time: a quarter of the hook's budget.
MAX_TIME_SHARE = 0.0025
# Of a device's memory, for batches.
MAX_DEVICE_SHARE = 0.01
# Per run.
MAX_RECORDS = 3

_MAX_COPIES = 64
_MAX_INTERVAL_STEPS = 1000
# Batches that are fetched before a step begins.
_MAX_PREFETCHED = 4

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RecordedStep:
    """One step: its inputs and losses. `size_bytes` is that of the arguments of the model."""

    number: int
    random: RandomState
    groups: list[list[dict[str, Any]]]
    inputs: StepInputs
    losses: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    size_bytes: int = 0


@dataclass(slots=True)
class _StateCopy:
    """A copy of the state. The memory of a copy that is held for writing is never reused."""

    state: TrainingState
    is_held: bool = False


class FlightRecorder:
    """Observes steps on the training thread; on that of the rules, it learns of evaluated steps and writes records.

    It keeps `steps` evaluated steps, in at most `max_bytes` of memory. `note` gets a sentence if it has to turn off.
    """

    def __init__(
        self, folder: Path, *, unfinished: Path, steps: int, max_bytes: int, note: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._unfinished = unfinished
        self._steps = steps
        self._max_bytes = max_bytes
        self._note = note
        self._lock = threading.Lock()
        self._copies: deque[_StateCopy] = deque()
        self._ring: deque[RecordedStep] = deque()
        self._prefetched: deque[InputValue] = deque(maxlen=_MAX_PREFETCHED)
        self._open: RecordedStep | None = None
        self._pace = _CopyInterval()
        self._last_evaluated = -1
        self._input_bytes = 0
        self._max_input_bytes = max_bytes // 4
        self._written: set[int] = set()
        self._worker = "worker_0"
        self._is_off = self._is_on_device = False
        intercept_inputs(batches=self._record_batch, targets=self._record_target)

    def begin_step(self, number: int, *, mode: Mode, models: Sequence[Any], optimizers: Sequence[Any]) -> None:
        if self._is_off or mode is not Mode.TRAIN:
            self._close_step()
            return
        self._pace.begin(time.perf_counter_ns())
        with self._lock:
            is_copied = self._pace.is_due(number) or self._input_bytes > self._max_input_bytes // 2
            if is_copied:
                self._copy(number, models, optimizers)
            inputs = StepInputs(batches=list(self._prefetched))
            random = RandomState.capture(is_whole=is_copied)
            self._open = RecordedStep(number, random, group_values(optimizers), inputs)
            self._ring.append(self._open)
            self._drop_old()
        self._prefetched.clear()

    def batch(self, _model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._open is None:
            return
        kept = InputValue.of((args, dict(kwargs)))
        self._open.inputs.arguments.append(kept)
        self._count(self._open, kept)

    def loss(self, name: str, value: Any) -> None:
        if self._open is not None:
            self._open.losses.append((name, value))

    def end_step(self, _number: int) -> None:
        self._close_step()

    def take(self, step: Step) -> None:
        """Note that the rules have evaluated a step."""
        self._worker = step.worker
        if step.mode is Mode.TRAIN:
            self._last_evaluated = step.number

    def end(self) -> None:
        self._is_off = True

    def fire(self, step: int, why: str, *, wait_s: float) -> None:
        """Write the record of a step, unless it is already written or no longer in memory.

        A separate thread writes it; the caller waits at most `wait_s` for it.
        """
        record = self._record(step, why)
        if record is None:
            return
        writer = threading.Thread(target=self._write, args=(record,), name="trainyard-record", daemon=True)
        writer.start()
        writer.join(wait_s)

    def _record_batch(self, batch: Any) -> Any:
        if not self._is_off:
            (self._prefetched if self._open is None else self._open.inputs.batches).append(InputValue.of(batch))
        return batch

    def _record_target(self, target: Any) -> Any:
        if self._open is not None:
            self._open.inputs.targets.append(InputValue.of(target))
        return target

    def _close_step(self) -> None:
        self._open = None
        self._prefetched.clear()

    def _count(self, step: RecordedStep, kept: InputValue) -> None:
        """Count the memory that a step keeps; on a device the limit is lower."""
        size = 0
        for tensor in tensors_in(kept.value):
            size += tensor.nbytes
            if tensor.is_cuda and not self._is_on_device:
                self._is_on_device = True
                total = torch.cuda.get_device_properties(tensor.device).total_memory
                self._max_input_bytes = min(self._max_input_bytes, int(total * MAX_DEVICE_SHARE))
        step.size_bytes += size
        self._input_bytes += size
        if step.size_bytes > self._max_input_bytes:
            self._turn_off(f"the inputs of one step take {step.size_bytes >> 20} MiB")

    def _copy(self, number: int, models: Sequence[Any], optimizers: Sequence[Any]) -> None:
        began = time.perf_counter_ns()
        old = self._copies.popleft() if len(self._copies) >= self._max_copies else None
        state = TrainingState() if old is None or old.is_held else old.state
        state.capture(number, models, optimizers)
        self._copies.append(_StateCopy(state))
        self._pace.note_copy(number, time.perf_counter_ns() - began)
        if 2 * state.size_bytes > self._max_bytes:
            self._turn_off(f"two copies of the model and its optimizer take {2 * state.size_bytes >> 20} MiB")

    @property
    def _max_copies(self) -> int:
        if not self._copies:
            return 2
        size = max(self._copies[-1].state.size_bytes, 1)
        return max(2, min(_MAX_COPIES, self._max_bytes // (2 * size)))

    def _drop_old(self) -> None:
        """Drop copies that no kept step needs, and the steps before the first remaining copy."""
        kept_from = self._last_evaluated - self._steps + 1
        while len(self._copies) > 2 and self._copies[1].state.step <= kept_from:
            self._copies.popleft()
        self._drop_steps()
        while len(self._copies) > 1 and self._input_bytes > self._max_input_bytes:
            self._copies.popleft()
            self._drop_steps()

    def _drop_steps(self) -> None:
        while self._ring and (not self._copies or self._ring[0].number < self._copies[0].state.step):
            self._input_bytes -= self._ring.popleft().size_bytes

    def _turn_off(self, why: str) -> None:
        self._is_off = True
        self._copies.clear()
        self._ring.clear()
        self._open = None
        self._note(f"The flight recorder is off: {why}, but it may use only {self._max_bytes >> 20} MiB in total.")

    def _record(self, step: int, why: str) -> FlightRecord | None:
        with self._lock:
            copies = [each for each in self._copies if each.state.step <= step]
            if self._is_off or not copies or step in self._written or len(self._written) >= MAX_RECORDS:
                return None
            first = copies[-1].state.step
            steps = [each for each in self._ring if first <= each.number <= step]
            if not steps or steps[-1].number != step:
                return None
            copies[-1].is_held = True
            self._written.add(step)
            return FlightRecord(self._worker, step, why, copies[-1].state, tuple(steps))

    def _write(self, record: FlightRecord) -> None:
        try:
            synchronize_devices()
            write_record(self._folder, record, unfinished=self._unfinished)
        except Exception as error:
            # A full disk, or a batch that cannot be written.
            log.warning("a step could not be recorded", exc_info=True)
            self._note(f"Step {record.step} of {record.worker} is not recorded: {error}.")


class _CopyInterval:
    """How often to copy the state, from how long a copy and a step take."""

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

    def note_copy(self, number: int, took_ns: int) -> None:
        # The first copy mostly pays for new memory.
        is_first = self._copied_at is None
        self._copied_at = number
        if not is_first:
            self._copy_ns += (0.2 if self._copy_ns else 1.0) * (took_ns - self._copy_ns)

    @property
    def _interval(self) -> int:
        if not self._step_ns or not self._copy_ns:
            return 1
        return min(_MAX_INTERVAL_STEPS, max(1, math.ceil(self._copy_ns / (MAX_TIME_SHARE * self._step_ns))))
