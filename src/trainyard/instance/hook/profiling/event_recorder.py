"""Records what happens in some steps as events: phases of steps, waits for data, communication.

While it records, it stands in front of the iterators of data loaders, and the step clock reports each phase to it.
Otherwise it is not there.
"""

import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, dataloader

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.profiles.step_times import StepRow

_STEP = "Step:ModeKeys."
_COMMUNICATION = "Communication"
# As AWS's library names them.
_PHASES: Mapping[int, str] = {
    StepPhase.DATA_WAIT: "DataWait",
    StepPhase.HOST_TO_DEVICE: "HostToDevice",
    StepPhase.FORWARD: "Forward",
    StepPhase.BACKWARD: "Backward",
    StepPhase.OPTIMIZER: "Optimizer",
    StepPhase.COMMUNICATION: _COMMUNICATION,
    StepPhase.CHECKPOINT: "Checkpoint",
}
_INITIALIZE, _NEXT, _LOADERS = "DataLoaderIterInitialize", "DataLoaderIter::GetNext", "DataLoader"
# An event as JSON, for the size of files before they are encoded.
_EVENT_BYTES = 160


class ThreadEvent(NamedTuple):
    """Something on the training thread, under the heading of its `kind`."""

    kind: str
    name: str
    started_us: int
    ended_us: int
    arguments: Mapping[str, Any]


class EventWindow:
    """The events of one window. `wants` says which are recorded, by their names. `write` gets each full file."""

    def __init__(
        self,
        what: str,
        *,
        wants: Callable[[str], bool],
        write: Callable[[Sequence[ThreadEvent]], None],
        file_bytes: int,
        file_s: float,
        max_bytes: int = 256 * 1024**2,
    ) -> None:
        self.what = what
        self._wants, self._write = wants, write
        self._max_events = max(1, file_bytes // _EVENT_BYTES)
        self._file_s = file_s
        self._left_bytes = max_bytes
        self._events: list[ThreadEvent] = []
        self._opened_at = time.monotonic()

    def add(self, event: ThreadEvent) -> None:
        if not self._wants(event.name):
            return
        self._events.append(event)
        if len(self._events) >= self._max_events or time.monotonic() - self._opened_at >= self._file_s:
            self.flush()

    def excess(self) -> str:
        """Return why the window must end now; empty as long as it need not."""
        return "its files were full" if self._left_bytes <= 0 else ""

    def flush(self) -> None:
        events, self._events = self._events, []
        self._opened_at = time.monotonic()
        if events:
            self._left_bytes -= len(events) * _EVENT_BYTES
            self._write(events)


class EventRecorder:
    """Gives all windows that are open the events of the training thread."""

    def __init__(self, timer: Any, loaders: Callable[[], list[dict[str, Any]]]) -> None:
        # The timer whose clock reports phases while a window is open; not its class, which imports this.
        self._timer = timer
        self._loaders = loaders
        self._windows: list[EventWindow] = []

    def open(self, window: EventWindow) -> None:
        self._windows.append(window)
        if len(self._windows) == 1:
            self._timer.clock.listen(self.record_phase)
            _observe_loaders(self)

    def close(self, window: EventWindow) -> None:
        """Write the last events of a window."""
        if window not in self._windows:
            return
        # The phases of a step that has not ended.
        self._timer.clock.count()
        now_us = time.time_ns() // 1000
        window.add(ThreadEvent(_LOADERS, _LOADERS, now_us, now_us, {"loaders": self._loaders()}))
        self._remove(window)
        window.flush()

    def forget(self) -> None:
        for window in list(self._windows):
            self._remove(window)

    def record(self, event: ThreadEvent) -> None:
        for window in self._windows:
            with suppress(Exception):
                # It came from within the program, which nothing may reach.
                window.add(event)

    def record_phase(self, phase: int, began_ns: int, ended_ns: int, step: int) -> None:
        name = _PHASES.get(phase)
        if name is not None:
            self.record(ThreadEvent(name, name, began_ns // 1000, ended_ns // 1000, {"step_num": str(step)}))

    def record_step(self, row: StepRow) -> None:
        name = f"{_STEP}{row.mode}"
        self.record(ThreadEvent(name, name, row.started_us, row.ended_us, {"step_num": str(row.number)}))

    def observe_loader(self, kind: str, iterator: Any, began_ns: int, work: Callable[[], Any]) -> Any:
        waiting = _waiting_batches(iterator) if kind == _NEXT else None
        result = work()
        if self._timer.is_ours():
            with suppress(Exception):
                self._record_loader(kind, result if iterator is None else iterator, began_ns, waiting)
        return result

    def _record_loader(self, kind: str, actual: Any, began_ns: int, waiting: int | None) -> None:
        name = type(actual).__name__
        arguments = {
            "num_workers": getattr(actual, "_num_workers", 0),
            "pin_memory": bool(getattr(actual, "_pin_memory", False)),
            **({} if waiting is None else {"batches_ready": waiting}),
        }
        label = f"{name}.__init__" if kind == _INITIALIZE else f"{name.strip('_')}::GetNext"
        self.record(ThreadEvent(kind, label, began_ns // 1000, time.time_ns() // 1000, arguments))

    def _remove(self, window: EventWindow) -> None:
        self._windows.remove(window)
        if not self._windows:
            _stop_observing_loaders()
            self._timer.clock.listen(None)


def encode_events(events: Sequence[ThreadEvent]) -> bytes:
    """Encode events as AWS's timelines are: an array in Chrome's format, whose times begin with the first event."""
    epoch_us = min(each.started_us for each in events)
    numbers: dict[str, int] = {}
    lines = [_metadata("process_name", 0, {"start_time_since_epoch_in_micros": epoch_us})]
    for each in events:
        if each.kind not in numbers:
            number = numbers[each.kind] = len(numbers) + 1
            lines.append(_metadata("process_name", number, {"name": each.kind}))
            lines.append(_metadata("process_sort_index", number, {"sort_index": number}))
        lines.append(
            {
                "name": each.name,
                "pid": numbers[each.kind],
                "ph": "X",
                "ts": each.started_us - epoch_us,
                "dur": max(0, each.ended_us - each.started_us),
                "args": dict(each.arguments),
            }
        )
    return b"[\n" + b",\n".join(json.dumps(line).encode() for line in lines) + b"\n]"


def is_communication(name: str) -> bool:
    return name == _COMMUNICATION


def _metadata(name: str, number: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": number, "args": dict(arguments)}


_originals: dict[tuple[type, str], Any] = {}


def _observe_loaders(recorder: EventRecorder) -> None:
    _replace(DataLoader, "__iter__", recorder, _with_recorded_start)
    _replace(dataloader._BaseDataLoaderIter, "__next__", recorder, _with_recorded_wait)


def _replace(owner: type, name: str, recorder: EventRecorder, wrap: Callable[..., Any]) -> None:
    original = _originals[owner, name] = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(wrap(original, recorder)))


def _stop_observing_loaders() -> None:
    for (owner, name), original in _originals.items():
        setattr(owner, name, original)
    _originals.clear()


def _with_recorded_start(original: Callable[[Any], Any], recorder: EventRecorder) -> Callable[[Any], Any]:
    return lambda self: recorder.observe_loader(_INITIALIZE, None, time.time_ns(), lambda: original(self))


def _with_recorded_wait(original: Callable[[Any], Any], recorder: EventRecorder) -> Callable[[Any], Any]:
    return lambda self: recorder.observe_loader(_NEXT, self, time.time_ns(), lambda: original(self))


def _waiting_batches(iterator: Any) -> int | None:
    """Return how many batches are ready before one is asked for; None if no workers make them."""
    with suppress(Exception):
        queue = getattr(iterator, "_data_queue", None)
        # Batches that came out of turn wait in the iterator itself.
        early = sum(1 for info in getattr(iterator, "_task_info", {}).values() if len(info) > 1)
        return None if queue is None else int(queue.qsize()) + early
    return None
