"""Statistics of many tensors at many steps in one array, and as tables that other tools take."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors import reductions
from trainyard.formats.tensors.contract import ABSENT, Column, Mode, Statistics, TensorInfo
from trainyard.formats.tensors.layout import MODES
from trainyard.formats.tensors.recording import WorkerRecording
from trainyard.formats.tensors.step_index import Numbers
from trainyard.foundation.errors import Unavailable

if TYPE_CHECKING:
    import polars
    import pyarrow


@dataclass(frozen=True, slots=True)
class Table:
    """Statistics of one worker: steps x tensors x statistics, NaN throughout where a tensor was not looked at.

    Statistics that are stored are 32-bit floats; as soon as a derived one is among them, all are 64-bit.
    """

    steps: Numbers
    mode_numbers: NDArray[np.uint8]  # in the order of `layout.MODES`
    mode_steps: Numbers
    at_us: Numbers
    worker: str
    tensors: tuple[str, ...]
    statistics: tuple[str, ...]
    values: NDArray[np.floating]
    is_known: NDArray[np.bool_]  # steps x tensors: whether the tensor was looked at

    @property
    def modes(self) -> list[Mode]:
        return [MODES[number] for number in self.mode_numbers]

    def to_numpy(self) -> NDArray[np.floating]:
        return self.values

    def to_arrow(self) -> "pyarrow.Table":
        """A row for each tensor in each step in which it was looked at."""
        try:
            import pyarrow as arrow
        except ImportError as error:
            raise _lacking("arrow", error) from error
        here = np.flatnonzero(self.is_known)
        steps, tensors = np.divmod(here, max(1, len(self.tensors)))
        words: dict[str, tuple[Sequence[str], NDArray[np.integer]]] = {
            "mode": (MODES, self.mode_numbers[steps]),
            "worker": ((self.worker,), np.zeros(len(here), np.int32)),
            "tensor": (self.tensors, tensors),
        }
        encoded = {name: _encoded(*told) for name, told in words.items()}
        columns = {
            "step": self.steps[steps],
            "mode": encoded["mode"],
            "mode_step": self.mode_steps[steps],
            "at": self.at_us[steps].astype("datetime64[us]"),
            "worker": encoded["worker"],
            "tensor": encoded["tensor"],
        }
        flat = self.values.reshape(-1, len(self.statistics))[here]
        return arrow.table(columns | {word: flat[:, place] for place, word in enumerate(self.statistics)})

    def to_polars(self) -> "polars.DataFrame":
        """The same as `to_arrow` gives."""
        try:
            import polars
        except ImportError as error:
            raise _lacking("polars", error) from error
        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame), "a table becomes a frame"
        return frame

    def write_csv(self, path: Path) -> int:
        """Write what `to_arrow` gives as text, with the names first, and tell how many rows that are."""
        rows = 0
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["step", "mode", "mode_step", "at_us", "worker", "tensor", *self.statistics])
            for place, step in enumerate(self.steps):
                counted = (
                    int(step),
                    str(MODES[self.mode_numbers[place]]),
                    int(self.mode_steps[place]),
                    int(self.at_us[place]),
                )
                for tensor in np.flatnonzero(self.is_known[place]):
                    writer.writerow([*counted, self.worker, self.tensors[tensor], *self.values[place, tensor].tolist()])
                    rows += 1
        return rows

    def write_parquet(self, path: Path) -> int:
        """Write what `to_arrow` gives, and tell how many rows that are."""
        table = self.to_arrow()
        from pyarrow import parquet

        parquet.write_table(table, path)
        return int(table.num_rows)


def tabulate(worker: WorkerRecording, rows: Numbers, *, names: Sequence[str], statistics: Sequence[str]) -> Table:
    """Statistics of some tensors in some rows, which rise."""
    index = worker.index
    is_plain = all(word in reductions.COLUMNS for word in statistics)
    shape = (len(rows), len(names), len(statistics))
    values: NDArray[np.floating] = np.empty(shape, np.float32 if is_plain else np.float64)
    is_known = np.zeros(shape[:2], bool)
    choice: _Choice | None = None
    for slab in worker.slabs(slice(int(rows[0]), int(rows[-1]) + 1)) if len(rows) else ():
        if choice is None or choice.tensors is not slab.tensors:
            choice = _choose(slab.tensors, names, statistics)
        first, end = np.searchsorted(rows, [slab.rows.start, slab.rows.stop])
        is_known[first:end] = choice.fill(values[first:end], slab.statistics, rows[first:end] - slab.rows.start)
    return Table(
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
class _Choice:
    """Which tensors of a slab go where in a table."""

    tensors: Sequence[TensorInfo]
    statistics: Sequence[str]
    there: NDArray[np.int64]  # places in the slab
    here: NDArray[np.int64]  # and in the table
    sizes: NDArray[np.int64]
    is_all: bool  # of the slab in its order, and nothing else

    def fill(self, values: NDArray[np.floating], told: Statistics, rows: Numbers) -> NDArray[np.bool_]:
        """Put what some rows of a slab tell into those of a table, and say which tensors they tell of."""
        if len(rows) < len(told):
            told = told[rows]
        if self.is_all:
            values[:] = told
        else:
            told = told[:, self.there]
            values[:] = np.nan
            for place, word in enumerate(self.statistics):
                values[:, self.here, place] = _column(told, word, self.sizes)
        is_known = np.zeros(values.shape[:2], bool)
        is_known[:, self.here] = told[..., Column.NANS] != ABSENT
        if not is_known.all():
            values[~is_known] = np.nan
        return is_known


def _choose(tensors: Sequence[TensorInfo], names: Sequence[str], statistics: Sequence[str]) -> _Choice:
    places = {tensor.name: place for place, tensor in enumerate(tensors)}
    here = [number for number, name in enumerate(names) if name in places]
    there = [places[names[number]] for number in here]
    every = list(range(len(tensors)))
    return _Choice(
        tensors,
        statistics,
        np.array(there, np.int64),
        np.array(here, np.int64),
        np.array([tensors[place].size for place in there], np.int64),
        there == every == list(range(len(names))) and tuple(statistics) == reductions.COLUMNS,
    )


def _column(told: Statistics, word: str, sizes: NDArray[np.int64]) -> NDArray[np.floating]:
    if word in reductions.COLUMNS:
        return told[..., Column[word.upper()]]
    return reductions.derive(told, word, size=sizes)


def _encoded(words: Sequence[str], places: NDArray[np.integer]) -> "pyarrow.DictionaryArray":
    """Words of which each is stored once."""
    import pyarrow as arrow

    return arrow.DictionaryArray.from_arrays(places.astype(np.int32), arrow.array(list(words), arrow.string()))


def _lacking(library: str, error: ImportError) -> Unavailable:
    return Unavailable(f"This needs {error.name}: pip install 'trainyard[{library}]'.")
