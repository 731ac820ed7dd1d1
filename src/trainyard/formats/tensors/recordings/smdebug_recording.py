"""Recordings in the layout of smdebug, so that old trials open.

    collections/000000000/<worker>_collections.json     the collections, and how many workers there are
    index/<thousands of steps>/<step>_<worker>.json     the tensors that were saved in a step, and their location
    events/<step>/<step>_<worker>.tfevents              the tensors
    training_job_end.ts                                 the end

Only saved steps are known, with what was saved of their tensors: values or reductions. Statistics are computed from the
values on request.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import (
    CollectionInfo,
    Kind,
    Mode,
    Statistic,
    Statistics,
    Step,
    TensorInfo,
    TensorTable,
)
from trainyard.formats.tensors.encoding.event_records import decode_record
from trainyard.formats.tensors.encoding.json_documents import read_json_object
from trainyard.formats.tensors.encoding.safetensors import TEXT, RawTensor
from trainyard.formats.tensors.recordings.contract import UNKNOWN_SHAPE, Reductions, RowValues, StatisticsBlock
from trainyard.formats.tensors.recordings.layout import MODES
from trainyard.formats.tensors.recordings.step_index import Numbers, StepIndex
from trainyard.formats.tensors.statistics import reductions
from trainyard.formats.tensors.statistics.histograms import BINS
from trainyard.foundation.errors import Corrupt
from trainyard.foundation.sources import ByteSource, HasLocalFiles

COLLECTIONS = "collections/000000000"
INDEX = "index"
END = "training_job_end.ts"

_COLLECTIONS_SUFFIX = "_collections.json"
_INDEX_SUFFIX = ".json"
_REDUCTIONS = "smdebug/reductions/"
_STEPS_PER_FOLDER = 1000

_KINDS = {
    "weights": Kind.WEIGHT,
    "biases": Kind.BIAS,
    "gradients": Kind.GRADIENT,
    "losses": Kind.LOSS,
    "optimizer_variables": Kind.OPTIMIZER,
}
_UNKNOWN = float("nan")


def is_of_smdebug(source: ByteSource) -> bool:
    """Whether smdebug wrote the trial."""
    return any(entry.name.endswith(_COLLECTIONS_SUFFIX) for entry in source.entries(COLLECTIONS))


class SmdebugRecording:
    """A recording that smdebug has written or is writing."""

    def __init__(self, source: ByteSource) -> None:
        self._source, self.is_near = source, isinstance(source, HasLocalFiles)
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
                content = read_json_object(self._source, f"{COLLECTIONS}/{entry.name}")
                self.num_workers = max(self.num_workers, int(content.get("_meta", {}).get("num_workers", 1)))
                found = {name: _collection(name, each) for name, each in content.get("collections", {}).items()}
                self.collections = {**self.collections, **found}
                self._workers.setdefault(worker, SmdebugWorker(worker, self._source)).set_collections(found)
        self._workers = dict(sorted(self._workers.items()))

    def _read_index(self) -> None:
        """Read the steps after the last one that all workers have."""
        last = min((worker.index.last for worker in self._workers.values()), default=-1)
        before = f"{last // _STEPS_PER_FOLDER - 1:09}" if last >= _STEPS_PER_FOLDER else ""
        for folder in self._source.folders(INDEX, after=before):
            for entry in self._source.entries(f"{INDEX}/{folder}", after=f"{last:012}" if last >= 0 else ""):
                step, _, worker = entry.name.removesuffix(_INDEX_SUFFIX).partition("_")
                known = self._workers.get(worker)
                if entry.name.endswith(_INDEX_SUFFIX) and known is not None and int(step) > known.index.last:
                    known.add_step(int(step), read_json_object(self._source, f"{INDEX}/{folder}/{entry.name}"))


@dataclass(frozen=True, slots=True)
class _RecordSpan:
    """The location of a record in its file."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class _SavedStep:
    """The tensors that were saved in a step, by name."""

    file: str
    spans: Mapping[str, _RecordSpan]
    reductions: Mapping[str, Mapping[tuple[str, bool], _RecordSpan]]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def names(self) -> list[str]:
        return list(dict.fromkeys([*self.spans, *self.reductions, *self.shapes]))


class SmdebugWorker:
    """The recording of one worker."""

    def __init__(self, name: str, source: ByteSource) -> None:
        self.name, self.index = name, StepIndex()
        self._source = source
        self._rows: list[_SavedStep] = []
        self._tensors: dict[str, TensorInfo] = {}
        self._saved: dict[Mode, set[str]] = {}
        self._collections: Mapping[str, CollectionInfo] = {}
        self._table = TensorTable(())

    def set_collections(self, collections: Mapping[str, CollectionInfo]) -> None:
        self._collections = collections

    def add_step(self, number: int, content: Mapping[str, Any]) -> None:
        """Add the index file of a step, which comes after all known ones."""
        try:
            saved, meta = _parse_saved_step(content), content["meta"]
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

    def names_at(self, row: int, *, saved: bool) -> list[str]:  # noqa: ARG002 - only saved tensors are known
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
        return self._read(saved.file, saved.spans[name]) if name in saved.spans else None

    def raw_part(self, name: str, row: int, first: int, count: int) -> RawTensor | None:
        whole = self.raw(name, row)
        if whole is None or whole.dtype == TEXT:
            return None
        return RawTensor.of(whole.array().reshape(-1)[first : first + count])

    def raw_bytes(self, name: str, row: int) -> int | None:
        spans = self._rows[row].spans
        return spans[name].length if name in spans else None

    def scalar(self, name: str, row: int) -> float | None:
        values = self._numbers(name, row)
        return None if values is None or values.size != 1 else float(values.reshape(-1)[0])

    def reductions(self, name: str, row: int) -> Reductions:
        saved = self._rows[row]
        found = {key: self._read(saved.file, span) for key, span in saved.reductions.get(name, {}).items()}
        return {key: float(value.array().reshape(-1)[0]) for key, value in found.items()}

    def series(self, name: str, statistic: str) -> RowValues:
        rows, values = [], []
        for row in self.saved_rows(name):
            value = self._statistic(name, int(row), statistic)
            if value is not None:
                rows.append(row)
                values.append(value)
        return RowValues(np.array(rows, np.int64), np.array(values, np.float64))

    def statistics_blocks(self, rows: slice) -> Iterator[StatisticsBlock]:
        for row in range(rows.start, rows.stop):
            content = self.step(row)
            yield StatisticsBlock(slice(row, row + 1), content.table.tensors, content.statistics[None])

    def histograms(self, name: str) -> RowValues:  # noqa: ARG002 - smdebug stores none
        return RowValues(np.empty(0, np.int64), np.empty((0, BINS), np.uint32))

    def step(self, row: int) -> Step:
        infos = [info for name in self._rows[row].names() if (info := self.info(name, row)) is not None]
        arrays = {info.name: raw.array() for info in infos if (raw := self.raw(info.name, row)) is not None}
        table = TensorTable(tuple(info for info in infos if info.dtype != TEXT))
        # A reader of many steps may cache by the identity of the table.
        if table != self._table:
            self._table = table
        content = [self._statistics(info.name, row, arrays.get(info.name)) for info in table.tensors]
        # The mean of one element is the element.
        scalars = [content[place][Statistic.MEAN] for place in table.scalars]
        return Step(
            int(self.index.numbers[row]),
            self.index.mode(row),
            int(self.index.mode_steps[row]),
            0,
            self.name,
            self._table,
            np.stack(content) if content else np.empty((0, len(Statistic)), np.float32),
            np.empty(0, np.float32),
            np.array(scalars, np.float64),
            saved=np.ones(len(table.tensors), bool),
            values=arrays,
        )

    def _read(self, file: str, span: _RecordSpan) -> RawTensor:
        return decode_record(self._source.read(file, start=span.start, size=span.length))

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


def _parse_saved_step(content: Mapping[str, Any]) -> _SavedStep:
    spans: dict[str, _RecordSpan] = {}
    reduction_spans: dict[str, dict[tuple[str, bool], _RecordSpan]] = {}
    for each in content["tensor_payload"]:
        name, span = each["tensorname"], _RecordSpan(each["start_idx"], each["length"])
        if name.startswith(_REDUCTIONS):
            word, _, tensor = name.removeprefix(_REDUCTIONS).partition("/")
            reduction_spans.setdefault(tensor, {})[word.removeprefix("abs_"), word.startswith("abs_")] = span
        else:
            spans[name] = span
    shapes = {each["tensorname"]: tuple(each["shape"]) for each in content.get("shape_payload", ())}
    return _SavedStep(content["meta"]["event_file_name"], spans, reduction_spans, shapes)


def _collection(name: str, content: Mapping[str, Any]) -> CollectionInfo:
    """Convert a collection from smdebug's words to AWS's."""
    reduction_config = content.get("reduction_config") or {}
    parameters = {"save_histogram": content.get("save_histogram"), **reduction_config}
    for mode, each in (content.get("save_config") or {}).items():
        parameters |= {f"{mode.lower()}.{word}": value for word, value in each.items()}
    plain = {word: _text(value) for word, value in parameters.items() if value not in (None, "", [])}
    return CollectionInfo(name, tuple(content.get("include_regex", ())), tuple(content.get("tensor_names", ())), plain)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(str(each) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
