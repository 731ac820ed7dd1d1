"""What a trial and its tensors look through: the workers' steps, those within a range, and those that are complete."""

import time
from math import inf
from typing import NamedTuple

import numpy as np

from trainyard.formats.tensors.contract import Mode
from trainyard.formats.tensors.errors import InvalidWorker, NoMoreData, StepNotYetAvailable, StepUnavailable
from trainyard.formats.tensors.recording import Recording, WorkerRecording
from trainyard.formats.tensors.step_index import Numbers

FAR_POLL_S = 1.0  # how old an answer from far away may be

Range = tuple[int | None, int | None]


class Found(NamedTuple):
    """A step as one worker has it."""

    worker: WorkerRecording
    row: int

    @property
    def number(self) -> int:
        return int(self.worker.index.numbers[self.row])


class View:
    """The steps of a recording within a range, refreshed as they are asked for."""

    def __init__(self, recording: Recording, range_steps: Range | None) -> None:
        self.recording, self.range_steps = recording, range_steps
        self.refreshes = True
        self._read_at = -inf

    @property
    def workers(self) -> list[WorkerRecording]:
        return list(self.recording.workers.values())

    def refresh(self, *, is_thorough: bool = False) -> None:
        """Read what has come."""
        self.recording.refresh(is_thorough=is_thorough)
        self._read_at = time.monotonic()

    def maybe_refresh(self) -> None:
        """Read what has come, unless that is switched off, the training has ended, or far away it was just done."""
        if not self.refreshes or self.recording.has_ended:
            return
        if self.recording.is_near or time.monotonic() - self._read_at >= FAR_POLL_S:
            self.refresh()

    def worker(self, name: str | None) -> WorkerRecording:
        """A worker by its name, or the first."""
        workers = self.recording.workers
        if name is None and workers:
            return next(iter(workers.values()))
        if name is None or name not in workers:
            raise InvalidWorker(name or "", list(workers))
        return workers[name]

    def horizon(self) -> float:
        """The number of the step up to which all are complete."""
        workers, recording = self.recording.workers, self.recording
        if len(workers) < recording.num_workers and not recording.has_ended:
            return -1
        going_on = [each for each in workers.values() if not recording.has_worker_ended(each.name)]
        return min((each.index.last for each in going_on), default=inf)

    def rows(self, worker: WorkerRecording, mode: Mode, *, until: float = inf) -> Numbers:
        """The rows of a mode within the range and up to a step."""
        rows = worker.index.rows(mode)
        numbers = worker.index.numbers[rows]
        first, end = self.range_steps or (None, None)
        start = 0 if first is None else int(np.searchsorted(numbers, first))
        stop = len(rows) if until == inf else int(np.searchsorted(numbers, until, side="right"))
        stop = stop if end is None else min(stop, int(np.searchsorted(numbers, end)))
        return rows[start:stop]

    def find(self, step: int, mode: Mode, worker: str | None = None) -> list[Found]:
        """A step as each worker has it, or as one does; none where none has it."""
        workers = self.workers if worker is None else [self.worker(worker)]
        rows = [(each, each.index.row(step, mode)) for each in workers]
        found = [Found(each, row) for each, row in rows if row is not None]
        return [each for each in found if self._is_in_range(each.number)]

    def require(self, step: int, mode: Mode, worker: str | None = None) -> list[Found]:
        """A step as each worker has it; what is raised says why none does."""
        found = self.find(step, mode, worker)
        if not found:
            raise self.why_not(step, mode)
        return found

    def last(self, mode: Mode, *, until: float = inf) -> int:
        """The last step of a mode that comes no later than a step, as the mode counts it; -1 where there is none."""
        return max((worker.index.last_of(mode, until=until) for worker in self.workers), default=-1)

    def why_not(self, step: int, mode: Mode) -> StepUnavailable | StepNotYetAvailable | NoMoreData:
        """Why a step cannot be had."""
        if step <= self.last(mode):
            return StepUnavailable(step, mode)
        if self.recording.has_ended:
            return NoMoreData(step, mode, last_step=self.last(mode))
        return StepNotYetAvailable(step, mode)

    def _is_in_range(self, number: int) -> bool:
        first, end = self.range_steps or (None, None)
        return (first is None or number >= first) and (end is None or number < end)
