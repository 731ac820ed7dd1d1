"""The view of a trial and its tensors on a recording: the workers' steps within a range, and which are complete."""

import time
from math import inf
from typing import NamedTuple

import numpy as np

from trainyard.formats.tensors.contract import Mode
from trainyard.formats.tensors.errors import InvalidWorker, NoMoreData, StepNotYetAvailable, StepUnavailable
from trainyard.formats.tensors.recordings.contract import Recording, WorkerRecording
from trainyard.formats.tensors.recordings.step_index import Numbers

# A remote recording is refreshed at most this often.
REMOTE_POLL_S = 1.0

Range = tuple[int | None, int | None]


class WorkerStep(NamedTuple):
    """A step of one worker."""

    worker: WorkerRecording
    row: int

    @property
    def number(self) -> int:
        return int(self.worker.index.numbers[self.row])


class StepView:
    """The steps of a recording within a range, refreshed on access."""

    def __init__(self, recording: Recording, range_steps: Range | None) -> None:
        self.recording, self.range_steps = recording, range_steps
        self.refreshes = True
        self._read_at = -inf

    @property
    def workers(self) -> list[WorkerRecording]:
        return list(self.recording.workers.values())

    def refresh(self, *, is_thorough: bool = False) -> None:
        """Read what is new."""
        self.recording.refresh(is_thorough=is_thorough)
        self._read_at = time.monotonic()

    def maybe_refresh(self) -> None:
        """Read what is new, unless refreshing is off, the training has ended, or a remote refresh was just done."""
        if not self.refreshes or self.recording.has_ended:
            return
        if self.recording.is_near or time.monotonic() - self._read_at >= REMOTE_POLL_S:
            self.refresh()

    def worker(self, name: str | None) -> WorkerRecording:
        """Return a worker by name, or the first."""
        workers = self.recording.workers
        if name is None and workers:
            return next(iter(workers.values()))
        if name is None or name not in workers:
            raise InvalidWorker(name or "", list(workers))
        return workers[name]

    def horizon(self) -> float:
        """Return the number of the last step that is complete, with all steps before it."""
        workers, recording = self.recording.workers, self.recording
        if len(workers) < recording.num_workers and not recording.has_ended:
            return -1
        running = [each for each in workers.values() if not recording.has_worker_ended(each.name)]
        return min((each.index.last for each in running), default=inf)

    def rows(self, worker: WorkerRecording, mode: Mode, *, until: float = inf) -> Numbers:
        """Return the rows of a mode within the range and up to a step."""
        rows = worker.index.rows(mode)
        numbers = worker.index.numbers[rows]
        first, end = self.range_steps or (None, None)
        start = 0 if first is None else int(np.searchsorted(numbers, first))
        stop = len(rows) if until == inf else int(np.searchsorted(numbers, until, side="right"))
        stop = stop if end is None else min(stop, int(np.searchsorted(numbers, end)))
        return rows[start:stop]

    def find(self, step: int, mode: Mode, worker: str | None = None) -> list[WorkerStep]:
        """Return a step of each worker that has it, or of one worker; may be empty."""
        workers = self.workers if worker is None else [self.worker(worker)]
        rows = [(each, each.index.row(step, mode)) for each in workers]
        found = [WorkerStep(each, row) for each, row in rows if row is not None]
        return [each for each in found if self._is_in_range(each.number)]

    def require(self, step: int, mode: Mode, worker: str | None = None) -> list[WorkerStep]:
        """Return a step of each worker that has it; raise the reason if none does."""
        found = self.find(step, mode, worker)
        if not found:
            raise self.unavailability(step, mode)
        return found

    def last(self, mode: Mode, *, until: float = inf) -> int:
        """Return the last step of a mode up to a global step, by its number in the mode; -1 if there is none."""
        return max((worker.index.last_of(mode, until=until) for worker in self.workers), default=-1)

    def unavailability(self, step: int, mode: Mode) -> StepUnavailable | StepNotYetAvailable | NoMoreData:
        """Return the error that says why a step is not available."""
        if step <= self.last(mode):
            return StepUnavailable(step, mode)
        if self.recording.has_ended:
            return NoMoreData(step, mode, last_step=self.last(mode))
        return StepNotYetAvailable(step, mode)

    def _is_in_range(self, number: int) -> bool:
        first, end = self.range_steps or (None, None)
        return (first is None or number >= first) and (end is None or number < end)
