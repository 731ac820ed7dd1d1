"""Writes the captured tensors of a worker to a folder, which others may read meanwhile.

Files of steps only grow, by complete batches; manifests and raw tensors are written atomically, by a rename. A process
that is killed at any moment loses only what it had not flushed.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import CollectionInfo, Step, TensorTable, WorkerState
from trainyard.formats.tensors.encoding import safetensors
from trainyard.formats.tensors.encoding.arrow_stream import END, Field, Schema, Statistic, encode_batch, encode_schema
from trainyard.formats.tensors.encoding.json_documents import encode_table
from trainyard.formats.tensors.encoding.safetensors import RawTensor
from trainyard.formats.tensors.recordings import layout
from trainyard.formats.tensors.statistics.histograms import BINS, Counts
from trainyard.foundation.clock import Clock, to_micros, utc_now
from trainyard.foundation.plain import to_plain

BATCH_STEPS = 64
# A segment is sealed at this size or age.
SEGMENT_BYTES = 16 << 20
SEGMENT_AGE = timedelta(seconds=15)
MANIFEST_EVERY = timedelta(seconds=1)

# The most rows of histograms in memory.
_MAX_HISTOGRAM_ROWS = 512

_MODES = {mode: number for number, mode in enumerate(layout.MODES)}

Raw = RawTensor | NDArray[Any]


class TrialWriter:
    """Writes the steps of one worker. For one thread at a time.

    Every method may raise OSError. The steps of a failed `flush` are lost and counted in the manifest; later steps
    begin a new segment. An earlier trial in the folder is continued: from the first repeated step on, the new steps
    replace the old ones.
    """

    def __init__(
        self,
        folder: Path,
        *,
        worker: str = "worker_0",
        workers: int = 1,
        collections: Sequence[CollectionInfo] = (),
        clock: Clock = utc_now,
    ) -> None:
        self._folder, self._clock = folder, clock
        self._state = WorkerState(worker, workers, -1, to_micros(clock()), collections=tuple(collections))
        self._manifest_at: datetime | None = None
        self._step_files, self._histogram_files = (
            _Segments(folder / kind / worker, clock) for kind in (layout.STEPS, layout.HISTOGRAMS)
        )
        self._steps: _StepRows | None = None
        self._histograms: _HistogramRows | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._write_manifest()

    @property
    def state(self) -> WorkerState:
        """The content of the manifest, as it is or will be written next."""
        return self._state

    def begin(self, table: TensorTable) -> None:
        """Continue with another table of tensors."""
        self.flush()
        self._seal()
        self._steps = _StepRows(table, self._step_files)
        self._histograms = _HistogramRows(table, self._histogram_files)

    def append(self, step: Step) -> None:
        """Add a step, in memory until the next `flush`; a full batch is flushed at once."""
        if self._steps is None or self._steps.is_different(step.table) or step.number <= self._state.last_step:
            # Within a segment, the numbers of steps must ascend.
            self.begin(step.table)
        assert self._steps is not None, "a table has begun"
        self._steps.append(step)
        counted = {**self._state.mode_steps, step.mode.value: step.mode_step + 1}
        self._state = replace(self._state, last_step=step.number, at_us=step.at_us, mode_steps=counted)
        if self._steps.is_full:
            self.flush()

    def append_histograms(self, step: Step, places: Sequence[int], counts: Counts) -> None:
        """Add histograms of a step, tensors x bins; `places` are indices into its table."""
        if self._histograms is None or self._histograms.is_different(step.table):
            self.begin(step.table)
        assert self._histograms is not None, "a table has begun"
        self._histograms.append(step, places, counts)
        if self._histograms.is_full:
            self._histograms.flush()

    def save_values(self, number: int, values: Mapping[str, Raw]) -> None:
        """Write all raw tensors of a step; they replace those that were saved for it before."""
        folder = self._folder / layout.VALUES / self._state.worker
        folder.mkdir(parents=True, exist_ok=True)
        raw = {name: each if isinstance(each, RawTensor) else RawTensor.of(each) for name, each in values.items()}
        _write_atomically(folder / layout.values_name(number), safetensors.encode(raw, {"step": str(number)}))

    def note_dropped(self, steps: int) -> None:
        """Count steps that were lost before they came here."""
        self._state = replace(self._state, dropped=self._state.dropped + steps)

    def flush(self) -> None:
        """Write what is in memory, so that it survives this process, and the manifest if it is due."""
        rows = self._steps
        if rows is not None:
            lost = rows.pending
            try:
                rows.flush()
            except OSError:
                self.note_dropped(lost)
                raise
            self._state = replace(self._state, segment=self._step_files.name)
        if self._histograms is not None:
            self._histograms.flush()
        if self._manifest_at is None or self._clock() - self._manifest_at >= MANIFEST_EVERY:
            self._write_manifest()

    def report(self) -> None:
        """Write the manifest now, whether it is due or not."""
        self._write_manifest()

    def close(self) -> None:
        """Write the rest and mark the worker as ended. Closing again does nothing."""
        if self._state.has_ended:
            return
        try:
            self.flush()
        finally:
            self._seal()
            self._state = replace(self._state, has_ended=True)
            self._write_manifest()

    def _seal(self) -> None:
        for files in (self._step_files, self._histogram_files):
            files.seal()

    def _write_manifest(self) -> None:
        manifest = json.dumps(to_plain(self._state)).encode()
        _write_atomically(self._folder / (self._state.worker + layout.MANIFEST_SUFFIX), [manifest])
        self._manifest_at = self._clock()


def mark_ended(folder: Path, *, at: datetime) -> None:
    """Mark the program of a trial as ended, for workers that were killed before they could do so themselves.

    A worker that writes later, in another attempt, still counts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_atomically(folder / layout.ENDED, [json.dumps({"at_us": to_micros(at)}).encode()])


class _Rows:
    """The rows of one table that are not written yet."""

    def __init__(self, table: TensorTable, segments: "_Segments") -> None:
        self._table, self._segments = table, segments

    def is_different(self, table: TensorTable) -> bool:
        """Whether a table differs from this one."""
        if table is not self._table and table == self._table:
            # The next comparison is then by identity.
            self._table = table
        return table is not self._table


class _StepRows(_Rows):
    def __init__(self, table: TensorTable, segments: "_Segments") -> None:
        super().__init__(table, segments)
        self.pending = 0
        self._schema = Schema(layout.step_fields(table), _metadata(table))
        self._columns = {each.name: _allocate(each, BATCH_STEPS) for each in self._schema.fields}

    @property
    def is_full(self) -> bool:
        return self.pending == BATCH_STEPS

    def append(self, step: Step) -> None:
        row, columns = self.pending, self._columns
        columns["step"][row], columns["mode"][row] = step.number, _MODES[step.mode]
        columns["mode_step"][row], columns["at_us"][row] = step.mode_step, step.at_us
        columns["lacks"][row] = step.lacks
        lists = {
            "saved": np.packbits(step.saved, bitorder="little") if len(step.saved) else 0,
            "scalars": step.scalars,
            "measures": step.measures,
            "statistics": step.statistics.reshape(-1),
        }
        for name, values in lists.items():
            if name in columns:
                columns[name][row] = values
        self.pending += 1

    def flush(self) -> None:
        rows, self.pending = self.pending, 0
        if rows:
            columns = [self._columns[each.name][:rows] for each in self._schema.fields]
            self._segments.write(self._schema, columns)


class _HistogramRows(_Rows):
    def __init__(self, table: TensorTable, segments: "_Segments") -> None:
        super().__init__(table, segments)
        self._schema = Schema(layout.HISTOGRAM_FIELDS, _metadata(table))
        self._pending: list[list[Statistic]] = []
        self._rows = 0

    @property
    def is_full(self) -> bool:
        return self._rows >= _MAX_HISTOGRAM_ROWS

    def append(self, step: Step, places: Sequence[int], counts: Counts) -> None:
        assert counts.shape == (len(places), BINS), f"{len(places)} histograms have {BINS} bins each"
        same = (step.number, _MODES[step.mode], step.mode_step, step.at_us)
        columns: list[Statistic] = [np.full(len(places), each, np.int64) for each in same]
        self._pending.append([*columns, np.asarray(places, np.int32), counts.copy()])
        self._rows += len(places)

    def flush(self) -> None:
        pending, self._pending, self._rows = self._pending, [], 0
        if pending:
            self._segments.write(self._schema, [np.concatenate(parts) for parts in zip(*pending, strict=True)])


class _Segments:
    """The segment files of one kind, one after the other."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = folder, clock
        self._file: int | None = None
        self._size, self._made_at, self._made_at_ms = 0, clock(), 0
        self.name = ""

    def write(self, schema: Schema, columns: Sequence[Statistic]) -> None:
        """Append a batch. If that fails, the segment is closed as it is: readers stop at an incomplete batch."""
        if self._file is None:
            self._open(first_step=int(columns[0][0]))
            pieces = [encode_schema(schema), *encode_batch(schema, columns)]
        else:
            pieces = list(encode_batch(schema, columns))
        try:
            self._size += self._write(pieces)
        except OSError:
            self._close()
            raise
        if self._size >= SEGMENT_BYTES or self._clock() - self._made_at >= SEGMENT_AGE:
            self.seal()

    def seal(self) -> None:
        if self._file is None:
            return
        try:
            self._write([END])
        finally:
            self._close()

    def _open(self, *, first_step: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._made_at, self._size = self._clock(), 0
        # Names must ascend even if the clock is set back, also between two attempts.
        before = self._made_at_ms or _last_made_at_ms(self._folder)
        self._made_at_ms = max(before + 1, to_micros(self._made_at) // 1000)
        self.name = layout.segment_name(self._made_at_ms, first_step)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._folder / self.name, flags, 0o644)

    def _write(self, pieces: Iterable[bytes | memoryview]) -> int:
        assert self._file is not None, "a segment is open"
        return _write_all(self._file, [piece for piece in pieces if len(piece)])

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None


def _last_made_at_ms(folder: Path) -> int:
    names = [entry.name.partition("-")[0] for entry in os.scandir(folder) if entry.name.endswith(layout.SEGMENT_SUFFIX)]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _metadata(table: TensorTable) -> dict[str, str]:
    return {
        layout.FORMAT_KEY: layout.FORMAT,
        layout.MODES_KEY: ",".join(layout.MODES),
        layout.TABLE_KEY: encode_table(table),
    }


def _allocate(field: Field, rows: int) -> Statistic:
    return np.zeros((rows, field.width) if field.width else rows, field.dtype)


def _write_all(file: int, pieces: Sequence[bytes | memoryview]) -> int:
    """Write pieces, if possible in one call, and return the number of bytes."""
    total = sum(len(piece) for piece in pieces)
    written = os.writev(file, pieces)
    if written == total:
        return total
    rest = memoryview(b"".join(pieces))[written:]
    while rest:
        rest = rest[os.write(file, rest) :]
    return total


def _write_atomically(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file atomically: a reader sees it complete or not at all."""
    unfinished = path.with_name(path.name + layout.UNFINISHED_SUFFIX)
    try:
        with unfinished.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
