"""Trials in the layout that smdebug wrote, so that old ones open.

    collections/000000000/<worker>_collections.json     the collections, and how many workers there are
    index/<thousands of steps>/<step>_<worker>.json     which tensors were saved in a step, and where they lie
    events/<step>/<step>_<worker>.tfevents              the tensors
    training_job_end.ts                                 the end

Only saved steps are known, and of their tensors what was saved: values, or reductions. Statistics are taken from the
values when they are asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors import reductions
from trainyard.formats.tensors.contract import (
    CollectionInfo,
    Column,
    Kind,
    Mode,
    Statistics,
    Step,
    TensorInfo,
    TensorTable,
)
from trainyard.formats.tensors.event_records import decode_record
from trainyard.formats.tensors.histograms import BINS
from trainyard.formats.tensors.json_objects import read_json_object
from trainyard.formats.tensors.layout import MODES
from trainyard.formats.tensors.recording import UNKNOWN_SHAPE, Reductions, RowValues, Slab
from trainyard.formats.tensors.safetensors import TEXT, RawTensor
from trainyard.formats.tensors.step_index import Numbers, StepIndex
from trainyard.foundation.errors import Corrupt
from trainyard.foundation.sources import ByteSource, LiesInFolder

COLLECTIONS = "collections/000000000"
INDEX = "index"
END = "training_job_end.ts"

_COLLECTIONS_SUFFIX = "_collections.json"
_INDEX_SUFFIX = ".json"
_REDUCTIONS = "smdebug/reductions/"
_STEPS_A_FOLDER = 1000

_KINDS = {
    "weights": Kind.WEIGHT,
    "biases": Kind.BIAS,
    "gradients": Kind.GRADIENT,
    "losses": Kind.LOSS,
    "optimizer_variables": Kind.OPTIMIZER,
}
_UNKNOWN = float("nan")


def is_of_smdebug(source: ByteSource) -> bool:
    """Whether smdebug wrote the trial there."""
    return any(entry.name.endswith(_COLLECTIONS_SUFFIX) for entry in source.entries(COLLECTIONS))


class SmdebugRecording:
    """A trial that smdebug has written, or is writing."""

    def __init__(self, source: ByteSource) -> None:
        self._source, self.is_near = source, isinstance(source, LiesInFolder)
        self._workers: dict[str, SmdebugWorker] = {}
        self.collections: Mapping[str, CollectionInfo] = {}
        self.num_workers = 0
        self.has_ended = False

    @property
    def workers(self) -> "Mapping[str, SmdebugWorker]":
        return self._workers

    def has_worker_ended(self, worker: str) -> bool:
        return self.has_ended and worker in self._workers

    def refresh(self, *, is_thorough: bool = False) -> None:
        if is_thorough or len(self._workers) < max(1, self.num_workers):
            self._read_collections()
        has_ended = any(entry.name == END for entry in self._source.entries())
        self._read_index()
        self.has_ended = has_ended

    def _read_collections(self) -> None:
        for entry in self._source.entries(COLLECTIONS):
            if entry.name.endswith(_COLLECTIONS_SUFFIX):
                worker = entry.name.removesuffix(_COLLECTIONS_SUFFIX)
                told = read_json_object(self._source, f"{COLLECTIONS}/{entry.name}")
                self.num_workers = max(self.num_workers, int(told.get("_meta", {}).get("num_workers", 1)))
                found = {name: _collection(name, each) for name, each in told.get("collections", {}).items()}
                self.collections = {**self.collections, **found}
                self._workers.setdefault(worker, SmdebugWorker(worker, self._source)).take_collections(found)
        self._workers = dict(sorted(self._workers.items()))

    def _read_index(self) -> None:
        """Read the steps behind the last one that all workers have."""
        last = min((worker.index.last for worker in self._workers.values()), default=-1)
        before = f"{last // _STEPS_A_FOLDER - 1:09}" if last >= _STEPS_A_FOLDER else ""
        for folder in self._source.folders(INDEX, after=before):
            for entry in self._source.entries(f"{INDEX}/{folder}", after=f"{last:012}" if last >= 0 else ""):
                step, _, worker = entry.name.removesuffix(_INDEX_SUFFIX).partition("_")
                known = self._workers.get(worker)
                if entry.name.endswith(_INDEX_SUFFIX) and known is not None and int(step) > known.index.last:
                    known.take_step(int(step), read_json_object(self._source, f"{INDEX}/{folder}/{entry.name}"))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Where in its file a record lies."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class _Saved:
    """What was saved in a step, by name."""

    file: str
    pieces: Mapping[str, _Piece]
    reductions: Mapping[str, Mapping[tuple[str, bool], _Piece]]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def names(self) -> list[str]:
        return list(dict.fromkeys([*self.pieces, *self.reductions, *self.shapes]))


class SmdebugWorker:
    """What one worker has written."""

    def __init__(self, name: str, source: ByteSource) -> None:
        self.name, self.index = name, StepIndex()
        self._source = source
        self._rows: list[_Saved] = []
        self._tensors: dict[str, TensorInfo] = {}
        self._saved: dict[Mode, set[str]] = {}
        self._collections: Mapping[str, CollectionInfo] = {}
        self._table = TensorTable(())

    def take_collections(self, collections: Mapping[str, CollectionInfo]) -> None:
        self._collections = collections

    def take_step(self, number: int, told: Mapping[str, Any]) -> None:
        """Note what an index file tells of a step, which comes after all that are known."""
        try:
            saved, meta = _saved(told), told["meta"]
            mode, mode_step = Mode(meta["mode"]), int(meta["mode_step"])
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"The index of step {number} of {self.name} cannot be read: {error!r}.") from error
        columns = {"numbers": number, "modes": MODES.index(mode), "mode_steps": mode_step, "at_us": 0, "is_saved": 1}
        self.index.append(**{name: np.array([value]) for name, value in columns.items()})
        self._rows.append(saved)
        for name in saved.names():
            self._tensors.setdefault(name, self._info(name, UNKNOWN_SHAPE, "float32"))
        for each in {mode, Mode.GLOBAL}:
            self._saved.setdefault(each, set()).update(saved.names())

    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def saved_names(self, mode: Mode) -> set[str]:
        return self._saved.get(mode, set())

    def names_at(self, row: int, *, saved: bool) -> list[str]:  # noqa: ARG002 - nothing else is known
        return self._rows[row].names()

    def saved_rows(self, name: str) -> Numbers:
        return np.array([row for row, saved in enumerate(self._rows) if name in saved.names()], np.int64)

    def info(self, name: str, row: int) -> TensorInfo | None:
        saved = self._rows[row]
        if name not in saved.names():
            return None
        raw = self.raw(name, row)
        shape = saved.shapes.get(name, UNKNOWN_SHAPE) if raw is None else raw.shape
        return self._info(name, shape, "float32" if raw is None else raw.dtype)

    def raw(self, name: str, row: int) -> RawTensor | None:
        saved = self._rows[row]
        return self._read(saved.file, saved.pieces[name]) if name in saved.pieces else None

    def scalar(self, name: str, row: int) -> float | None:
        values = self._numbers(name, row)
        return None if values is None or values.size != 1 else float(values.reshape(-1)[0])

    def reductions(self, name: str, row: int) -> Reductions:
        saved = self._rows[row]
        found = {key: self._read(saved.file, piece) for key, piece in saved.reductions.get(name, {}).items()}
        return {key: float(value.array().reshape(-1)[0]) for key, value in found.items()}

    def series(self, name: str, statistic: str) -> RowValues:
        rows, values = [], []
        for row in self.saved_rows(name):
            value = self._statistic(name, int(row), statistic)
            if value is not None:
                rows.append(row)
                values.append(value)
        return RowValues(np.array(rows, np.int64), np.array(values, np.float64))

    def slabs(self, rows: slice) -> Iterator[Slab]:
        for row in range(rows.start, rows.stop):
            told = self.step(row)
            yield Slab(slice(row, row + 1), told.table.tensors, told.statistics[None])

    def histograms(self, name: str) -> RowValues:  # noqa: ARG002 - smdebug keeps none as data
        return RowValues(np.empty(0, np.int64), np.empty((0, BINS), np.uint32))

    def step(self, row: int) -> Step:
        infos = [info for name in self._rows[row].names() if (info := self.info(name, row)) is not None]
        arrays = {info.name: raw.array() for info in infos if (raw := self.raw(info.name, row)) is not None}
        table = TensorTable(tuple(info for info in infos if info.dtype != TEXT))
        if table != self._table:  # who looks at many steps may keep notes on a table
            self._table = table
        told = [self._statistics(info.name, row, arrays.get(info.name)) for info in table.tensors]
        scalars = [told[place][Column.MEAN] for place in table.scalars]  # of one element, that is the element
        return Step(
            int(self.index.numbers[row]),
            self.index.mode(row),
            int(self.index.mode_steps[row]),
            0,
            self.name,
            self._table,
            np.stack(told) if told else np.empty((0, len(Column)), np.float32),
            np.empty(0, np.float32),
            np.array(scalars, np.float64),
            saved=np.ones(len(table.tensors), bool),
            values=arrays,
        )

    def _read(self, file: str, piece: _Piece) -> RawTensor:
        return decode_record(self._source.read(file, start=piece.start, size=piece.length))

    def _numbers(self, name: str, row: int) -> NDArray[Any] | None:
        raw = self.raw(name, row)
        return None if raw is None or raw.dtype == TEXT else raw.array()

    def _info(self, name: str, shape: tuple[int, ...], dtype: str) -> TensorInfo:
        within = tuple(each.name for each in self._collections.values() if name in each.tensor_names)
        kind = next((_KINDS[each] for each in within if each in _KINDS), None)
        if kind is None and name.startswith("scalar/"):
            kind = Kind.SCALAR
        if kind is None and "_output_" in name:
            kind = Kind.OUTPUT
        if kind is None and "_input_" in name:
            kind = Kind.INPUT
        return TensorInfo(name, kind or Kind.CUSTOM, shape, dtype, within)

    def _statistic(self, name: str, row: int, statistic: str) -> float | None:
        word = statistic.removeprefix("abs_")
        known = {} if statistic == "value" else self.reductions(name, row)
        if (word, statistic != word) in known:
            return known[word, statistic != word]
        if statistic == "value":
            return self.scalar(name, row)
        values = self._numbers(name, row)
        if values is None or statistic not in reductions.STATISTICS:
            return None
        return float(reductions.derive(reductions.statistics_of(values), statistic, size=values.size))

    def _statistics(self, name: str, row: int, values: NDArray[Any] | None) -> Statistics:
        if values is not None:
            return reductions.statistics_of(values)
        known = self.reductions(name, row)
        words = [("mean", False), ("std", False), ("mean", True), ("min", False), ("max", False)]
        return np.array([*(known.get(word, _UNKNOWN) for word in words), *[_UNKNOWN] * 3], np.float32)


def _saved(told: Mapping[str, Any]) -> _Saved:
    pieces: dict[str, _Piece] = {}
    reduced: dict[str, dict[tuple[str, bool], _Piece]] = {}
    for each in told["tensor_payload"]:
        name, piece = each["tensorname"], _Piece(each["start_idx"], each["length"])
        if name.startswith(_REDUCTIONS):
            word, _, tensor = name.removeprefix(_REDUCTIONS).partition("/")
            reduced.setdefault(tensor, {})[word.removeprefix("abs_"), word.startswith("abs_")] = piece
        else:
            pieces[name] = piece
    shapes = {each["tensorname"]: tuple(each["shape"]) for each in told.get("shape_payload", ())}
    return _Saved(told["meta"]["event_file_name"], pieces, reduced, shapes)


def _collection(name: str, told: Mapping[str, Any]) -> CollectionInfo:
    """A collection in AWS's words, from smdebug's own."""
    kept = told.get("reduction_config") or {}
    parameters = {"save_histogram": told.get("save_histogram"), **kept}
    for mode, each in (told.get("save_config") or {}).items():
        parameters |= {f"{mode.lower()}.{word}": value for word, value in each.items()}
    plain = {word: _text(value) for word, value in parameters.items() if value not in (None, "", [])}
    return CollectionInfo(name, tuple(told.get("include_regex", ())), tuple(told.get("tensor_names", ())), plain)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(str(each) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
