"""Recordings in our own layout, which `layout.py` describes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import (
    ABSENT,
    CollectionInfo,
    Mode,
    Scalars,
    Statistic,
    Statistics,
    Step,
    TensorInfo,
    TensorTable,
    Values,
    WorkerState,
)
from trainyard.formats.tensors.encoding.json_documents import read_json_object
from trainyard.formats.tensors.encoding.safetensors import RawTensor
from trainyard.formats.tensors.recordings import layout
from trainyard.formats.tensors.recordings.contract import Reductions, RowValues, StatisticsBlock
from trainyard.formats.tensors.recordings.live_writers import flush_writers
from trainyard.formats.tensors.recordings.raw_values import RawValues
from trainyard.formats.tensors.recordings.segments import Block, FileMaps, SegmentLog
from trainyard.formats.tensors.recordings.step_index import Numbers, StepIndex
from trainyard.formats.tensors.statistics import reductions
from trainyard.formats.tensors.statistics.histograms import BINS, Counts
from trainyard.foundation.errors import Corrupt, NotFound
from trainyard.foundation.plain import from_plain
from trainyard.foundation.sources import ByteSource, HasLocalFiles

# The prefix of stored reductions that do not follow from the statistics.
_REDUCTIONS = "smdebug/reductions"


class ArrowRecording:
    """The recording of workers that use `TrialWriter`."""

    def __init__(self, source: ByteSource) -> None:
        self._source, self.is_near = source, isinstance(source, HasLocalFiles)
        self._folder = source.path("") if isinstance(source, HasLocalFiles) else None
        self._maps = FileMaps()
        self._workers: dict[str, ArrowWorker] = {}
        self._states: dict[str, WorkerState] = {}
        self.has_ended = False

    @property
    def workers(self) -> "Mapping[str, ArrowWorker]":
        return self._workers

    @property
    def states(self) -> Mapping[str, WorkerState]:
        """The workers' manifests at the last refresh."""
        return self._states

    @property
    def num_workers(self) -> int:
        return max((state.workers for state in self._states.values()), default=0)

    @property
    def collections(self) -> Mapping[str, CollectionInfo]:
        return {each.name: each for state in self._states.values() for each in state.collections}

    def has_worker_ended(self, worker: str) -> bool:
        state = self._states.get(worker)
        return self.has_ended or (state is not None and state.has_ended and self._is_all_here(state))

    def refresh(self, *, is_thorough: bool = False) -> None:
        if self._folder is not None:
            flush_writers(self._folder)
        if is_thorough or len(self._states) < max(1, self.num_workers):
            self._find_workers()
        for worker in self._states:
            self._states[worker] = self._state(worker)
        # The manifests are read before the files, so after an end in them the files are complete.
        has_ended = self._is_end_announced()
        for worker, state in self._states.items():
            self._workers[worker].refresh(newest=state.segment, is_thorough=is_thorough or has_ended)
        self.has_ended = has_ended and all(self._is_all_here(state) for state in self._states.values())

    def _is_all_here(self, state: WorkerState) -> bool:
        """Whether all files of a manifest have arrived: uploads to a store may finish in any order."""
        return self.is_near or self._workers[state.worker].index.last >= state.last_step or state.dropped > 0

    def _find_workers(self) -> None:
        entries = self._source.entries()
        suffix = layout.MANIFEST_SUFFIX
        for name in sorted(entry.name.removesuffix(suffix) for entry in entries if entry.name.endswith(suffix)):
            if name not in self._states:
                self._states[name] = self._state(name)
                self._workers[name] = ArrowWorker(name, self._source, self._maps)
        self._workers = dict(sorted(self._workers.items(), key=lambda item: _sort_key(item[0])))

    def _state(self, worker: str) -> WorkerState:
        return from_plain(WorkerState, read_json_object(self._source, worker + layout.MANIFEST_SUFFIX))

    def _is_end_announced(self) -> bool:
        states = self._states.values()
        if states and len(states) == self.num_workers and all(state.has_ended for state in states):
            return True
        try:
            ended_at = read_json_object(self._source, layout.ENDED).get("at_us", 0)
        except NotFound:
            return False
        return bool(ended_at >= max((state.at_us for state in states), default=0))


class ArrowWorker:
    """The recording of one worker."""

    def __init__(self, name: str, source: ByteSource, maps: FileMaps) -> None:
        self.name, self.index = name, StepIndex()
        self._steps = SegmentLog(f"{layout.STEPS}/{name}", source, maps)
        self._values = RawValues(f"{layout.VALUES}/{name}", source)
        self._histograms = HistogramLog(SegmentLog(f"{layout.HISTOGRAMS}/{name}", source, maps))
        self._tensors: dict[str, TensorInfo] = {}
        self._table: TensorTable | None = None
        # By mode and the id of the table.
        self._saved: dict[tuple[Mode, int], _SavedBits] = {}

    def refresh(self, *, newest: str, is_thorough: bool) -> None:
        for block in self._steps.refresh(newest=newest, is_thorough=is_thorough):
            self._add(block)

    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def saved_names(self, mode: Mode) -> set[str]:
        found = [saved for (saved_mode, _), saved in self._saved.items() if saved_mode is mode]
        return {name for saved in found for name in _saved_tensor_names(saved.table, saved.bits)}

    def names_at(self, row: int, *, saved: bool) -> list[str]:
        block = self._steps.block_of(row)
        if saved:
            bits = block.at("saved", row)
            return [] if bits is None else _saved_tensor_names(block.table, bits)
        nans = self._statistics(block, row)[:, Statistic.NANS]
        return [block.table.tensors[place].name for place in np.flatnonzero(nans != ABSENT)]

    def saved_rows(self, name: str) -> Numbers:
        found = [np.empty(0, np.int64)]
        for block, place in self._blocks_with(name):
            bits = block.column("saved", place // 8)
            if bits is not None:
                found.append(block.first + np.flatnonzero(bits >> place % 8 & 1))
        return np.concatenate(found)

    def info(self, name: str, row: int) -> TensorInfo | None:
        table = self._steps.block_of(row).table
        return table.tensors[table.places[name]] if name in table.places else None

    def raw(self, name: str, row: int) -> RawTensor | None:
        return self._values.read(int(self.index.numbers[row]), name) if self.index.is_saved[row] else None

    def raw_part(self, name: str, row: int, first: int, count: int) -> RawTensor | None:
        if not self.index.is_saved[row]:
            return None
        return self._values.read_part(int(self.index.numbers[row]), name, first, count)

    def raw_bytes(self, name: str, row: int) -> int | None:
        entry = self._values.location(int(self.index.numbers[row]), name) if self.index.is_saved[row] else None
        return None if entry is None else entry.end - entry.start

    def scalar(self, name: str, row: int) -> float | None:
        block = self._steps.block_of(row)
        place = block.table.places.get(name)
        if place is None or place not in block.table.scalars:
            return None
        if self._statistics(block, row)[place, Statistic.NANS] == ABSENT:
            return None
        scalars = block.at("scalars", row)
        return None if scalars is None else float(scalars[block.table.scalars.index(place)])

    def reductions(self, name: str, row: int) -> Reductions:
        info, block = self.info(name, row), self._steps.block_of(row)
        if info is None:
            return {}
        statistics = self._statistics(block, row)[block.table.places[name]]
        return reductions.known_reductions(statistics, size=info.size) | self._saved_reductions(name, row)

    def series(self, name: str, statistic: str) -> RowValues:
        rows: list[Numbers] = [np.empty(0, np.int64)]
        found: list[NDArray[Any]] = [np.empty(0, np.float32)]
        for block, place in self._blocks_with(name):
            values = self._values_of(block, place, statistic)
            nans = block.column("statistics", place * len(Statistic) + Statistic.NANS)
            if values is not None and nans is not None:
                here = np.flatnonzero(nans != ABSENT)
                rows.append(block.first + here)
                found.append(values if len(here) == len(values) else values[here])
        return RowValues(np.concatenate(rows), np.concatenate(found))

    def statistics_blocks(self, rows: slice) -> Iterator[StatisticsBlock]:
        for block in self._steps.blocks:
            for part in block.parts(rows):
                statistics, tensors = part.column("statistics"), part.table.tensors
                shape = (part.rows, len(tensors), len(Statistic))
                shaped = np.empty(shape, np.float32) if statistics is None else statistics.reshape(shape)
                yield StatisticsBlock(slice(part.first, part.end), tensors, shaped)

    def histograms(self, name: str) -> RowValues:
        found = self._histograms.read(name)
        rows = np.searchsorted(self.index.numbers, found.steps)
        known = rows < len(self.index)
        known[known] = self.index.numbers[rows[known]] == found.steps[known]
        return RowValues(rows[known], found.counts[known])

    def step(self, row: int) -> Step:
        block, number = self._steps.block_of(row), int(self.index.numbers[row])
        saved, lacks = block.at("saved", row), block.at("lacks", row)
        measures, scalars = block.at("measures", row), block.at("scalars", row)
        return Step(
            number,
            self.index.mode(row),
            int(self.index.mode_steps[row]),
            int(self.index.at_us[row]),
            self.name,
            block.table,
            self._statistics(block, row),
            np.empty(0, np.float32) if measures is None else measures,
            np.empty(0, np.float64) if scalars is None else scalars,
            0 if lacks is None else int(lacks),
            np.empty(0, bool) if saved is None else _unpack_bits(saved, len(block.table.tensors)),
            self._values.values_of(number) if self.index.is_saved[row] else {},
        )

    def _add(self, block: Block) -> None:
        """Add new rows. If the training went back to an earlier step, remove the steps after it."""
        numbers, modes, mode_steps, at_us = (
            _require_column(block, name) for name in ("step", "mode", "mode_step", "at_us")
        )
        self.index.truncate(min(len(self._steps), int(np.searchsorted(self.index.numbers, numbers[0]))))
        if len(self.index) < len(self._steps):
            self._steps.truncate(len(self.index))
            self._values.clear_cache()
        saved = block.column("saved")
        is_saved = np.zeros(len(numbers), bool) if saved is None else np.asarray(saved.any(axis=1))
        self.index.append(numbers=numbers, modes=modes, mode_steps=mode_steps, at_us=at_us, is_saved=is_saved)
        self._steps.add(block)
        if saved is not None:
            self._note_saved(block.table, modes, saved)
        if block.table is not self._table:
            self._table = block.table
            self._tensors.update({tensor.name: tensor for tensor in block.table.tensors})

    def _note_saved(self, table: TensorTable, modes: NDArray[np.uint8], saved: NDArray[np.uint8]) -> None:
        for number in np.flatnonzero(np.bincount(modes)):
            bits = np.bitwise_or.reduce(saved[modes == number], axis=0)
            for mode in {layout.MODES[number], Mode.GLOBAL}:
                before = self._saved.get((mode, id(table)))
                self._saved[mode, id(table)] = _SavedBits(table, before.bits | bits if before else bits)

    def _blocks_with(self, name: str) -> Iterator[tuple[Block, int]]:
        for block in self._steps.blocks:
            place = block.table.places.get(name)
            if place is not None:
                yield block, place

    def _statistics(self, block: Block, row: int) -> Statistics:
        statistics = block.at("statistics", row)
        # There are no tensors.
        if statistics is None:
            return np.empty((0, len(Statistic)), np.float32)
        return statistics.reshape(len(block.table.tensors), len(Statistic))

    def _values_of(self, block: Block, place: int, statistic: str) -> Values | Scalars | None:
        table = block.table
        if statistic == "value":
            return block.column("scalars", table.scalars.index(place)) if place in table.scalars else None
        if statistic in reductions.COLUMNS:
            return block.column("statistics", place * len(Statistic) + reductions.COLUMNS.index(statistic))
        if statistic in reductions.STATISTICS:
            statistics = block.column("statistics", slice(place * len(Statistic), (place + 1) * len(Statistic)))
            return (
                None if statistics is None else reductions.derive(statistics, statistic, size=table.tensors[place].size)
            )
        for number, measure in enumerate(table.measures):
            if measure.tensor == place and measure.probe.word == statistic:
                return block.column("measures", number)
        return None

    def _saved_reductions(self, name: str, row: int) -> dict[tuple[str, bool], float]:
        """Return the reductions that were saved with the raw values."""
        if not self.index.is_saved[row]:
            return {}
        found = {}
        for stored in self._values.values_of(int(self.index.numbers[row])):
            if stored.startswith(_REDUCTIONS) and stored.endswith(f"/{name}"):
                word = stored.removeprefix(f"{_REDUCTIONS}/").removesuffix(f"/{name}")
                raw = self.raw(stored, row)
                if "/" not in word and raw is not None:
                    found[word.removeprefix("abs_"), word.startswith("abs_")] = float(raw.array().reshape(-1)[0])
        return found


@dataclass(frozen=True, slots=True)
class StepHistograms:
    """The histograms of a tensor: a row of counts for each step, in ascending order."""

    steps: Numbers
    counts: Counts


class HistogramLog:
    """The histograms of one worker; for a repeated step, the newest."""

    def __init__(self, segments: SegmentLog) -> None:
        self._segments = segments

    def read(self, name: str) -> StepHistograms:
        for block in self._segments.refresh(is_thorough=True):
            self._segments.add(block)
        found: dict[int, Counts] = {}
        for block in self._segments.blocks:
            place = block.table.places.get(name)
            steps, tensors, counts = (block.column(each) for each in ("step", "tensor", "counts"))
            if place is not None and steps is not None and tensors is not None and counts is not None:
                rows = np.flatnonzero(tensors == place)
                found |= zip(steps[rows].tolist(), counts[rows], strict=True)
        steps_found = np.array(sorted(found), np.int64)
        stacked = [found[int(step)] for step in steps_found]
        return StepHistograms(steps_found, np.stack(stacked) if stacked else np.empty((0, BINS), np.uint32))


@dataclass(frozen=True, slots=True)
class _SavedBits:
    """The tensors of a table that were ever saved, as bits."""

    table: TensorTable
    bits: NDArray[np.uint8]


def _require_column(block: Block, name: str) -> NDArray[Any]:
    found = block.column(name)
    if found is None:
        raise Corrupt(f'The segment "{block.segment.name}" has no column "{name}".')
    return found


def _saved_tensor_names(table: TensorTable, bits: NDArray[np.uint8]) -> list[str]:
    return [table.tensors[place].name for place in np.flatnonzero(_unpack_bits(bits, len(table.tensors)))]


def _unpack_bits(bits: NDArray[np.uint8], count: int) -> NDArray[np.bool_]:
    return np.unpackbits(bits, bitorder="little", count=count).astype(bool)


def _sort_key(worker: str) -> tuple[str, int, str]:
    """Return the sort key of a worker: worker_10 comes after worker_9."""
    stem, _, number = worker.rpartition("_")
    return (stem, int(number), "") if number.isdecimal() else (worker, 0, worker)
