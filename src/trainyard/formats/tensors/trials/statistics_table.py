"""Statistics of many tensors at many steps as one array, with export to other tools."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import ABSENT, Mode, Statistic, Statistics, TensorInfo
from trainyard.formats.tensors.recordings.contract import WorkerRecording
from trainyard.formats.tensors.recordings.layout import MODES
from trainyard.formats.tensors.recordings.step_index import Numbers
from trainyard.formats.tensors.statistics import reductions
from trainyard.foundation.errors import Unavailable

if TYPE_CHECKING:
    import polars
    import pyarrow


@dataclass(frozen=True, slots=True)
class StatisticsTable:
    """Statistics of one worker: steps x tensors x statistics; all NaN if a tensor was not captured.

    Stored statistics are 32-bit floats; if any is derived, all are 64-bit.
    """

    steps: Numbers
    # Indices into `layout.MODES`.
    mode_numbers: NDArray[np.uint8]
    mode_steps: Numbers
    at_us: Numbers
    worker: str
    tensors: tuple[str, ...]
    statistics: tuple[str, ...]
    values: NDArray[np.floating]
    # Whether a tensor was captured: steps x tensors.
    is_known: NDArray[np.bool_]

    @property
    def modes(self) -> list[Mode]:
        return [MODES[number] for number in self.mode_numbers]

    def to_numpy(self) -> NDArray[np.floating]:
        return self.values

    def to_arrow(self) -> "pyarrow.Table":
        """Return a row for each tensor in each step that captured it."""
        try:
            import pyarrow as arrow
        except ImportError as error:
            raise _missing_library("arrow", error) from error
        table_indices = np.flatnonzero(self.is_known)
        steps, tensors = np.divmod(table_indices, max(1, len(self.tensors)))
        words: dict[str, tuple[Sequence[str], NDArray[np.integer]]] = {
            "mode": (MODES, self.mode_numbers[steps]),
            "worker": ((self.worker,), np.zeros(len(table_indices), np.int32)),
            "tensor": (self.tensors, tensors),
        }
        encoded = {name: _dictionary_column(*statistics_rows) for name, statistics_rows in words.items()}
        columns = {
            "step": self.steps[steps],
            "mode": encoded["mode"],
            "mode_step": self.mode_steps[steps],
            "at": self.at_us[steps].astype("datetime64[us]"),
            "worker": encoded["worker"],
            "tensor": encoded["tensor"],
        }
        flat = self.values.reshape(-1, len(self.statistics))[table_indices]
        return arrow.table(columns | {word: flat[:, place] for place, word in enumerate(self.statistics)})

    def to_polars(self) -> "polars.DataFrame":
        """Return the same rows as `to_arrow`."""
        try:
            import polars
        except ImportError as error:
            raise _missing_library("polars", error) from error
        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame), "an Arrow table becomes a data frame"
        return frame

    def write_csv(self, path: Path) -> int:
        """Write the rows of `to_arrow` as CSV with a header, and return their number."""
        rows = 0
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["step", "mode", "mode_step", "at_us", "worker", "tensor", *self.statistics])
            for place, step in enumerate(self.steps):
                step_fields = (
                    int(step),
                    str(MODES[self.mode_numbers[place]]),
                    int(self.mode_steps[place]),
                    int(self.at_us[place]),
                )
                for tensor in np.flatnonzero(self.is_known[place]):
                    writer.writerow(
                        [*step_fields, self.worker, self.tensors[tensor], *self.values[place, tensor].tolist()]
                    )
                    rows += 1
        return rows

    def write_parquet(self, path: Path) -> int:
        """Write the rows of `to_arrow` as Parquet, and return their number."""
        table = self.to_arrow()
        from pyarrow import parquet

        parquet.write_table(table, path)
        return int(table.num_rows)


def tabulate(
    worker: WorkerRecording, rows: Numbers, *, names: Sequence[str], statistics: Sequence[str]
) -> StatisticsTable:
    """Return the statistics of some tensors in some rows, which ascend."""
    index = worker.index
    is_plain = all(word in reductions.COLUMNS for word in statistics)
    shape = (len(rows), len(names), len(statistics))
    values: NDArray[np.floating] = np.empty(shape, np.float32 if is_plain else np.float64)
    is_known = np.zeros(shape[:2], bool)
    selection: _TensorMapping | None = None
    for block in worker.statistics_blocks(slice(int(rows[0]), int(rows[-1]) + 1)) if len(rows) else ():
        if selection is None or selection.tensors is not block.tensors:
            selection = _select(block.tensors, names, statistics)
        first, end = np.searchsorted(rows, [block.rows.start, block.rows.stop])
        is_known[first:end] = selection.fill(values[first:end], block.statistics, rows[first:end] - block.rows.start)
    return StatisticsTable(
        index.numbers[rows],
        index.modes_of(rows),
        index.mode_steps[rows],
        index.at_us[rows],
        worker.name,
        tuple(names),
        tuple(statistics),
        values,
        is_known,
    )


@dataclass(frozen=True, slots=True)
class _TensorMapping:
    """The mapping of the tensors of a statistics block to those of a table."""

    tensors: Sequence[TensorInfo]
    statistics: Sequence[str]
    # Indices in the block, and in the table.
    block_indices: NDArray[np.int64]
    table_indices: NDArray[np.int64]
    sizes: NDArray[np.int64]
    # Whether the table has exactly the block's tensors and columns, in the same order.
    is_identity: bool

    def fill(self, values: NDArray[np.floating], statistics_rows: Statistics, rows: Numbers) -> NDArray[np.bool_]:
        """Copy rows of a block into those of a table, and return which tensors were captured."""
        if len(rows) < len(statistics_rows):
            statistics_rows = statistics_rows[rows]
        if self.is_identity:
            values[:] = statistics_rows
        else:
            statistics_rows = statistics_rows[:, self.block_indices]
            values[:] = np.nan
            for place, word in enumerate(self.statistics):
                values[:, self.table_indices, place] = _column(statistics_rows, word, self.sizes)
        is_known = np.zeros(values.shape[:2], bool)
        is_known[:, self.table_indices] = statistics_rows[..., Statistic.NANS] != ABSENT
        if not is_known.all():
            values[~is_known] = np.nan
        return is_known


def _select(tensors: Sequence[TensorInfo], names: Sequence[str], statistics: Sequence[str]) -> _TensorMapping:
    places = {tensor.name: place for place, tensor in enumerate(tensors)}
    table_indices = [number for number, name in enumerate(names) if name in places]
    block_indices = [places[names[number]] for number in table_indices]
    all_indices = list(range(len(tensors)))
    return _TensorMapping(
        tensors,
        statistics,
        np.array(block_indices, np.int64),
        np.array(table_indices, np.int64),
        np.array([tensors[place].size for place in block_indices], np.int64),
        block_indices == all_indices == list(range(len(names))) and tuple(statistics) == reductions.COLUMNS,
    )


def _column(statistics_rows: Statistics, word: str, sizes: NDArray[np.int64]) -> NDArray[np.floating]:
    if word in reductions.COLUMNS:
        return statistics_rows[..., Statistic[word.upper()]]
    return reductions.derive(statistics_rows, word, size=sizes)


def _dictionary_column(words: Sequence[str], places: NDArray[np.integer]) -> "pyarrow.DictionaryArray":
    """Return a dictionary-encoded column: each word is stored once."""
    import pyarrow as arrow

    return arrow.DictionaryArray.from_arrays(places.astype(np.int32), arrow.array(list(words), arrow.string()))


def _missing_library(library: str, error: ImportError) -> Unavailable:
    return Unavailable(f"This needs {error.name}: pip install 'trainyard[{library}]'.")
