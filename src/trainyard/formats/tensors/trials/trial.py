"""A trial: the captured tensors of a training, live or finished, local or on S3, in our layout or that of smdebug.

Steps are identified by their global number or, if a mode is given, by their number within the mode. As in smdebug,
`steps()` are those in which something was saved. Statistics are known of every step; `series`, `table`, `statistics`
and `reduction_value` return them.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import CollectionInfo, Mode, Step, TensorInfo
from trainyard.formats.tensors.errors import MissingCollectionFiles, NoMoreData, StepUnavailable, TensorUnavailable
from trainyard.formats.tensors.recordings import layout
from trainyard.formats.tensors.recordings.arrow_recording import ArrowRecording
from trainyard.formats.tensors.recordings.contract import Recording, WorkerRecording
from trainyard.formats.tensors.recordings.live_writers import flush_writers
from trainyard.formats.tensors.recordings.step_index import Numbers, merge_steps
from trainyard.formats.tensors.statistics import reductions
from trainyard.formats.tensors.trials.excerpts import (
    Distributions,
    Rectangle,
    read_distributions,
    read_rectangle,
)
from trainyard.formats.tensors.trials.statistics_grid import StatisticsGrid, reduce_to_grid
from trainyard.formats.tensors.trials.statistics_table import StatisticsTable, tabulate
from trainyard.formats.tensors.trials.step_view import REMOTE_POLL_S, Range, StepView, WorkerStep
from trainyard.formats.tensors.trials.tensor import Tensor
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.sources import ByteSource, FolderSource, HasLocalFiles

LOCAL_POLL_S = 0.1


class StepState(IntEnum):
    """The availability of a step."""

    # It was skipped, or the training has ended.
    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class Series(NamedTuple):
    """A value at each of some steps."""

    steps: Numbers
    values: NDArray[Any]


def create_trial(
    path: str | Path | ByteSource,
    name: str | None = None,
    range_steps: Range | None = None,
    *,
    timeout_s: float = 0.0,
    pause: Callable[[float], None] = time.sleep,
) -> "Trial":
    """Open the trial in a folder; wait up to `timeout_s` for its first worker to appear.

    `range_steps` excludes steps before the first number and from the second on. Raise MissingCollectionFiles if there
    is no trial.
    """
    source = FolderSource(Path(path).expanduser()) if isinstance(path, str | Path) else path
    deadline = time.monotonic() + timeout_s
    while (recording := find_recording(source)) is None:
        if time.monotonic() >= deadline:
            raise MissingCollectionFiles(source.place, "no hook has written anything there")
        pause(LOCAL_POLL_S)
    name = name or Path(source.place).name
    return Trial(recording, name, range_steps=range_steps, pause=pause, source=source)


def find_recording(source: ByteSource) -> Recording | None:
    """Return the recording of a source, in either layout; None if there is none."""
    if isinstance(source, HasLocalFiles):
        flush_writers(source.path(""))
    if any(entry.name.endswith(layout.MANIFEST_SUFFIX) for entry in source.entries()):
        return ArrowRecording(source)
    # Few trials need this import.
    from trainyard.formats.tensors.recordings.smdebug_recording import SmdebugRecording, is_of_smdebug

    return SmdebugRecording(source) if is_of_smdebug(source) else None


class Trial:
    """The captured tensors of a training, as far as they are written. For one thread at a time.

    A step is complete when every worker has recorded or passed it. Raises Unavailable while a remote trial cannot be
    reached. With the `source` that the recording reads, a notebook can follow the trial in a thread of its own.
    """

    def __init__(
        self,
        recording: Recording,
        name: str = "trial",
        *,
        range_steps: Range | None = None,
        pause: Callable[[float], None] = time.sleep,
        source: ByteSource | None = None,
    ) -> None:
        self.name = name
        self._view, self._pause, self._source = StepView(recording, range_steps), pause, source
        self.refresh()

    def __repr__(self) -> str:
        return f"<trial {self.name}>"

    def _repr_html_(self) -> str:
        from trainyard.formats.tensors.trials.notebook import trial_html

        return trial_html(self)

    def _ipython_display_(self) -> None:
        from trainyard.formats.tensors.trials.notebook import view_trial
        from trainyard.foundation.notebook_live import show_live

        # A trial is for one thread at a time, but any number of trials can read one source.
        if self._source is None:
            raise NotImplementedError
        own = create_trial(self._source, self.name, self.range_steps)
        show_live(lambda: view_trial(own))

    @property
    def range_steps(self) -> Range | None:
        return self._view.range_steps

    @property
    def dynamic_refresh(self) -> bool:
        """Whether every query reads what is new first."""
        return self._view.refreshes

    @dynamic_refresh.setter
    def dynamic_refresh(self, refreshes: bool) -> None:
        self._view.refreshes = refreshes

    @property
    def num_workers(self) -> int:
        """The number of workers, whether they have begun or not."""
        return self._view.recording.num_workers

    @property
    def loaded_all_steps(self) -> bool:
        """Whether the training has ended and everything has been read."""
        self._view.maybe_refresh()
        return self._view.recording.has_ended

    @property
    def last_complete_step(self) -> int:
        """The last step that all workers have recorded or passed; -1 before the first."""
        self._view.maybe_refresh()
        return self._view.last(Mode.GLOBAL, until=self._view.horizon())

    def refresh(self) -> None:
        """Read everything that is new, also what no manifest announces yet."""
        self._view.refresh(is_thorough=True)

    def maybe_refresh(self) -> None:
        """Read what is new, unless refreshing is off, the training has ended, or a remote refresh was just done."""
        self._view.maybe_refresh()

    @contextmanager
    def no_refresh(self) -> Iterator[None]:
        """Answer all queries in this block from the same snapshot."""
        before, self._view.refreshes = self._view.refreshes, False
        try:
            yield
        finally:
            self._view.refreshes = before

    def workers(self) -> list[str]:
        self._view.maybe_refresh()
        return list(self._view.recording.workers)

    def recordings(self) -> Mapping[str, WorkerRecording]:
        """Return the recording of each worker, for bulk reads."""
        self._view.maybe_refresh()
        return self._view.recording.workers

    def collections(self) -> dict[str, CollectionInfo]:
        self._view.maybe_refresh()
        return dict(self._view.recording.collections)

    def collection(self, name: str) -> CollectionInfo | None:
        return self.collections().get(name)

    def modes(self) -> list[Mode]:
        """Return the modes in which the training has made steps."""
        self._view.maybe_refresh()
        found = {mode for worker in self._view.workers for mode in worker.index.modes()}
        return [mode for mode in Mode if mode in found]

    def mode(self, global_step: int) -> Mode | None:
        """Return the mode of a step; None if there is no such step."""
        found = self._first(global_step, Mode.GLOBAL)
        return found.worker.index.mode(found.row) if found else None

    def mode_step(self, global_step: int) -> int | None:
        """Return the number of a step within its mode."""
        found = self._first(global_step, Mode.GLOBAL)
        return int(found.worker.index.mode_steps[found.row]) if found else None

    def global_step(self, mode: Mode, mode_step: int) -> int | None:
        """Return the global number of a step of a mode."""
        found = self._first(mode_step, mode)
        return found.number if found else None

    def steps(self, mode: Mode = Mode.GLOBAL, show_incomplete_steps: bool = False, *, known: bool = False) -> list[int]:
        """Return the complete steps in which something was saved, or with `known` all steps with statistics."""
        self._view.maybe_refresh()
        until = inf if show_incomplete_steps else self._view.horizon()
        found: list[Numbers] = []
        for worker in self._view.workers:
            rows = self._view.rows(worker, mode, until=until)
            found.append(worker.index.labels(rows if known else rows[worker.index.is_saved[rows]], mode))
        return merge_steps(found)

    def tensor_names(
        self,
        *,
        step: int | None = None,
        mode: Mode = Mode.GLOBAL,
        regex: str | Sequence[str] | None = None,
        collection: str | CollectionInfo | None = None,
        known: bool = False,
    ) -> list[str]:
        """Return the names of tensors that were saved, ever or in a step; with `known` all with statistics."""
        if regex is not None and collection is not None:
            raise InvalidRequest("Select tensors by a regex or by a collection, not by both.")
        self._view.maybe_refresh()
        names = self._names(mode, known=known) if step is None else self._names_at(step, mode, known=known)
        if regex is not None:
            patterns = [_compile(each) for each in ([regex] if isinstance(regex, str) else regex)]
            names = {name for name in names if any(pattern.search(name) for pattern in patterns)}
        if collection is not None:
            names &= self._members(collection)
        return sorted(names)

    def has_tensor(self, name: str) -> bool:
        self._view.maybe_refresh()
        return any(name in worker.tensors() for worker in self._view.workers)

    def tensor(self, name: str) -> Tensor:
        if not self.has_tensor(name):
            raise TensorUnavailable(name, trial=self.name)
        return Tensor(name, self._view)

    def tensors(self) -> dict[str, TensorInfo]:
        """Return all captured tensors, in the order in which a step computes them."""
        self._view.maybe_refresh()
        found: dict[str, TensorInfo] = {}
        for worker in self._view.workers:
            found = dict(worker.tensors()) | found
        return found

    def has_passed_step(self, step: int, mode: Mode = Mode.GLOBAL) -> StepState:
        """Return whether a saved step is available, may still come, or never will."""
        self._view.maybe_refresh()
        horizon, found = self._view.horizon(), self._view.find(step, mode)
        if any(each.worker.index.is_saved[each.row] and each.number <= horizon for each in found):
            return StepState.AVAILABLE
        is_over = step <= self._view.last(mode, until=horizon) or self._view.recording.has_ended
        return StepState.UNAVAILABLE if is_over else StepState.NOT_YET_AVAILABLE

    def wait_for_steps(self, required_steps: Sequence[int], mode: Mode = Mode.GLOBAL) -> None:
        """Wait until all these steps are available.

        Raise StepUnavailable if one was skipped, NoMoreData if the training ended before it.
        """
        for step in required_steps:
            while (state := self.has_passed_step(step, mode)) is StepState.NOT_YET_AVAILABLE:
                self._pause(LOCAL_POLL_S if self._view.recording.is_near else REMOTE_POLL_S)
                # Also within `no_refresh`.
                self._view.refresh()
            if state is StepState.UNAVAILABLE and step > self._view.last(mode):
                raise NoMoreData(step, mode, last_step=max(self.steps(mode), default=-1))
            if state is StepState.UNAVAILABLE:
                raise StepUnavailable(step, mode)

    def series(
        self, name: str, statistic: str = "value", *, mode: Mode = Mode.GLOBAL, worker: str | None = None
    ) -> Series:
        """Return a statistic of a tensor at every step that captured it.

        The statistics are mean, std, mean_abs, min, max, zeros, nans and infs, what follows from them (variance, sum,
        l1, l2, abs_max …), the words of probes, and "value" for the exact value of a tensor with one element. Without a
        worker, the parts of a distributed tensor are joined; of any other, the first worker's values are returned.
        """
        self._view.maybe_refresh()
        holders = self._holders(name, worker)
        if len(holders) > 1 and statistic in reductions.STATISTICS:
            return self._joined_series(holders, name, statistic, mode=mode)
        return self._series_of(holders[0], name, statistic, mode=mode)

    def table(
        self,
        *,
        names: Sequence[str] | None = None,
        regex: str | Sequence[str] | None = None,
        collection: str | CollectionInfo | None = None,
        statistics: Sequence[str] = reductions.COLUMNS,
        mode: Mode = Mode.GLOBAL,
        worker: str | None = None,
    ) -> StatisticsTable:
        """Return the statistics of all or some tensors of one worker at every step."""
        self._view.maybe_refresh()
        chosen = self._view.worker(worker)
        if names is None and regex is None and collection is None:
            names = list(chosen.tensors())
        elif names is None:
            wanted = set(self.tensor_names(regex=regex, collection=collection, known=True))
            names = [each for each in chosen.tensors() if each in wanted]
        unknown = [word for word in statistics if word not in reductions.STATISTICS]
        if unknown:
            raise InvalidRequest(f"Unknown statistics {unknown}; known are {', '.join(reductions.STATISTICS)}.")
        return tabulate(chosen, self._view.rows(chosen, mode), names=names, statistics=statistics)

    def grid(
        self,
        names: Sequence[str],
        statistic: str,
        *,
        max_groups: int,
        mode: Mode = Mode.GLOBAL,
        worker: str | None = None,
        steps: Range = (None, None),
    ) -> StatisticsGrid:
        """Return a statistic of some tensors of one worker, in at most `max_groups` groups of steps.

        The statistic is one of those of `series`. `steps` has the first step and the one before which to end. Steps
        have their numbers among the steps of all modes, whatever mode is chosen.
        """
        self._view.maybe_refresh()
        chosen = self._view.worker(worker)
        rows, labels = self._rows_between(chosen, mode, steps)
        return reduce_to_grid(chosen, rows, labels, names=names, statistic=statistic, max_groups=max_groups)

    def distributions(
        self,
        name: str,
        *,
        max_steps: int,
        mode: Mode = Mode.GLOBAL,
        worker: str | None = None,
        steps: Range = (None, None),
    ) -> Distributions:
        """Return the histograms of a tensor at up to `max_steps` steps, as recorded or computed from saved values."""
        self._view.maybe_refresh()
        chosen = self._holders(name, worker)[0]
        rows, labels = self._rows_between(chosen, mode, steps)
        return read_distributions(chosen, name, rows, labels, max_steps=max_steps)

    def rectangle(
        self,
        name: str,
        step: int,
        *,
        worker: str | None = None,
        first_row: int = 0,
        first_column: int = 0,
        rows: int = 20,
        columns: int = 20,
    ) -> Rectangle | None:
        """Return some elements of a tensor in a step as a matrix; None if its values were not saved there."""
        self._view.maybe_refresh()
        chosen = self._holders(name, worker)[0]
        found = self._view.require(step, Mode.GLOBAL, chosen.name)[0]
        return read_rectangle(
            chosen, name, found.row, first_row=first_row, first_column=first_column, rows=rows, columns=columns
        )

    def statistics(
        self, step: int, *, mode: Mode = Mode.GLOBAL, worker: str | None = None
    ) -> dict[str, dict[str, float]]:
        """Return the eight statistics of all tensors in a step, saved or not, by tensor and statistic."""
        self._view.maybe_refresh()
        found = self._view.require(step, mode, worker)[0]
        told = found.worker.step(found.row)
        return {
            name: dict(zip(reductions.COLUMNS, map(float, told.statistics[told.table.places[name]]), strict=True))
            for name in found.worker.names_at(found.row, saved=False)
        }

    def step(self, step: int, *, mode: Mode = Mode.GLOBAL, worker: str | None = None) -> Step:
        """Return a step as a worker recorded it, saved or not, with its raw tensors."""
        self._view.maybe_refresh()
        found = self._view.require(step, mode, worker)[0]
        return found.worker.step(found.row)

    def read_steps(self, *, after: int = -1, worker: str | None = None) -> Iterator[Step]:
        """Iterate over the steps that a worker has recorded after one, in order, each as `step` returns it."""
        self._view.maybe_refresh()
        chosen = self._view.worker(worker)
        rows = self._view.rows(chosen, Mode.GLOBAL)
        for row in rows[np.searchsorted(chosen.index.numbers[rows], after, side="right") :]:
            yield chosen.step(int(row))

    def inputs(self, step: int, mode: Mode = Mode.GLOBAL) -> list[NDArray[Any]]:
        """Return the saved tensors of the collection "inputs" in a step."""
        return self._values_of("inputs", step, mode)

    def labels(self, step: int, mode: Mode = Mode.GLOBAL) -> list[NDArray[Any]]:
        """Return the saved tensors of the collection "labels" in a step."""
        return self._values_of("labels", step, mode)

    def predictions(self, step: int, mode: Mode = Mode.GLOBAL) -> list[NDArray[Any]]:
        """Return the saved tensors of the collection "predictions" in a step."""
        return self._values_of("predictions", step, mode)

    def _rows_between(self, worker: WorkerRecording, mode: Mode, steps: Range) -> tuple[Numbers, Numbers]:
        """Return the rows of a worker in a range of steps, and the numbers of these steps among all steps."""
        rows = self._view.rows(worker, mode)
        labels = worker.index.numbers[rows]
        first, end = steps
        start = 0 if first is None else int(np.searchsorted(labels, first))
        stop = len(rows) if end is None else int(np.searchsorted(labels, end))
        return rows[start:stop], labels[start:stop]

    def _first(self, step: int, mode: Mode) -> WorkerStep | None:
        self._view.maybe_refresh()
        return next(iter(self._view.find(step, mode)), None)

    def _names(self, mode: Mode, *, known: bool) -> set[str]:
        workers = self._view.workers
        return {name for each in workers for name in (each.tensors() if known else each.saved_names(mode))}

    def _names_at(self, step: int, mode: Mode, *, known: bool) -> set[str]:
        found = self._view.require(step, mode)
        return {name for each in found for name in each.worker.names_at(each.row, saved=not known)}

    def _members(self, collection: str | CollectionInfo) -> set[str]:
        name = collection if isinstance(collection, str) else collection.name
        asked = self._view.recording.collections.get(name) if isinstance(collection, str) else collection
        listed = set(asked.tensor_names) if asked else set()
        patterns = [re.compile(each) for each in asked.include_regex] if asked else []
        return {
            tensor
            for worker in self._view.workers
            for tensor, info in worker.tensors().items()
            if name in info.collections or tensor in listed or any(each.search(tensor) for each in patterns)
        }

    def _holders(self, name: str, worker: str | None) -> list[WorkerRecording]:
        """Return the workers with a tensor: one, or all that have a part of it."""
        asked = self._view.workers if worker is None else [self._view.worker(worker)]
        holders = [each for each in asked if name in each.tensors()]
        if not holders:
            raise TensorUnavailable(name, trial=self.name)
        return holders if holders[0].tensors()[name].whole_shape else holders[:1]

    def _series_of(self, worker: WorkerRecording, name: str, statistic: str, *, mode: Mode) -> Series:
        found = worker.series(name, statistic)
        if not len(found.rows):
            _check_statistic(name, statistic, worker.tensors()[name])
        rows = self._view.rows(worker, mode)
        if len(rows) < len(worker.index):
            wanted = np.isin(found.rows, rows, assume_unique=True)
            return Series(worker.index.labels(found.rows[wanted], mode), found.values[wanted])
        return Series(worker.index.labels(found.rows, mode), found.values)

    def _joined_series(self, holders: Sequence[WorkerRecording], name: str, statistic: str, *, mode: Mode) -> Series:
        sizes = [worker.tensors()[name].size for worker in holders]
        told = [[self._series_of(each, name, word, mode=mode) for word in reductions.COLUMNS] for each in holders]
        steps = told[0][0].steps
        for series in told[1:]:
            steps = np.intersect1d(steps, series[0].steps, assume_unique=True)
        parts = [
            np.stack([each.values[np.searchsorted(each.steps, steps)] for each in series], axis=-1) for series in told
        ]
        return Series(steps, reductions.derive(reductions.join(parts, sizes), statistic, size=sum(sizes)))

    def _values_of(self, collection: str, step: int, mode: Mode) -> list[NDArray[Any]]:
        names = self.tensor_names(step=step, mode=mode, collection=collection)
        return [Tensor(name, self._view).value(step, mode) for name in names]


def _compile(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except re.error as error:
        raise InvalidRequest(f'"{regex}" is not a valid regular expression: {error}.') from error


def _check_statistic(name: str, statistic: str, info: TensorInfo) -> None:
    """Raise if a series can never have a value."""
    known = ", ".join(reductions.STATISTICS)
    if statistic == "value" and info.size != 1:
        raise InvalidRequest(
            f'The tensor "{name}" has {info.size} elements, so its value has no series; known statistics are {known}.'
        )
    if statistic not in (*reductions.STATISTICS, "value"):
        raise InvalidRequest(
            f'"{statistic}" is neither a statistic nor a probe that a rule measured of the tensor "{name}"; '
            f"known statistics are {known}."
        )
