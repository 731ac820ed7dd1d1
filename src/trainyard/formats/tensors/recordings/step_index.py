"""The index of a worker's steps, in ascending order, by number or by number within a mode."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Mode
from trainyard.formats.tensors.recordings.layout import MODES

Numbers = NDArray[np.int64]

_INITIAL_CAPACITY = 256


class StepIndex:
    """Append-only rows of steps; a step is found by binary search."""

    def __init__(self) -> None:
        self._rows = {
            "numbers": _GrowingArray(np.int64),
            "modes": _GrowingArray(np.uint8),
            "mode_steps": _GrowingArray(np.int64),
            "at_us": _GrowingArray(np.int64),
            "is_saved": _GrowingArray(np.bool_),
        }
        self._rows_of_mode = {mode: _GrowingArray(np.int64) for mode in MODES}

    def __len__(self) -> int:
        return self._rows["numbers"].size

    @property
    def numbers(self) -> Numbers:
        return self._rows["numbers"].array

    @property
    def at_us(self) -> Numbers:
        return self._rows["at_us"].array

    @property
    def mode_steps(self) -> Numbers:
        return self._rows["mode_steps"].array

    @property
    def is_saved(self) -> NDArray[np.bool_]:
        return self._rows["is_saved"].array

    @property
    def last(self) -> int:
        """The number of the last step; -1 before the first."""
        return int(self.numbers[-1]) if len(self) else -1

    def mode(self, row: int) -> Mode:
        return MODES[self._rows["modes"].array[row]]

    def modes_of(self, rows: Numbers) -> NDArray[np.uint8]:
        """Return the modes of rows, as indices into `MODES`."""
        return self._rows["modes"].array[rows]

    def modes(self) -> set[Mode]:
        return {mode for mode, rows in self._rows_of_mode.items() if rows.size}

    def rows(self, mode: Mode = Mode.GLOBAL) -> Numbers:
        """Return the rows of the steps of a mode, or of all."""
        return np.arange(len(self)) if mode is Mode.GLOBAL else self._rows_of_mode[mode].array

    def labels(self, rows: Numbers, mode: Mode = Mode.GLOBAL) -> Numbers:
        """Return the step numbers of rows: those within the mode, or the global ones."""
        return (self.numbers if mode is Mode.GLOBAL else self.mode_steps)[rows]

    def row(self, step: int, mode: Mode = Mode.GLOBAL) -> int | None:
        """Return the row of a step, by its global number or its number within a mode."""
        rows = None if mode is Mode.GLOBAL else self._rows_of_mode[mode].array
        labels = self.numbers if rows is None else self.mode_steps[rows]
        position = int(np.searchsorted(labels, step))
        if position == len(labels) or labels[position] != step:
            return None
        return position if rows is None else int(rows[position])

    def last_of(self, mode: Mode, *, until: float) -> int:
        """Return the number within its mode of the last step up to the global step `until`; -1 if there is none."""
        rows = self.rows(mode)
        count = int(np.searchsorted(self.numbers[rows], until, side="right"))
        return int(self.labels(rows[count - 1 : count], mode)[0]) if count else -1

    def append(self, **columns: NDArray[Any]) -> None:
        """Append rows; their numbers ascend and exceed all present ones."""
        first = len(self)
        for name, rows in self._rows.items():
            rows.extend(columns[name])
        for number, mode in enumerate(MODES):
            self._rows_of_mode[mode].extend(first + np.flatnonzero(columns["modes"] == number))

    def truncate(self, size: int) -> None:
        """Remove all rows from `size` on."""
        for rows in self._rows.values():
            rows.size = size
        for rows in self._rows_of_mode.values():
            rows.size = int(np.searchsorted(rows.array, size))


def merge_steps(parts: Sequence[Numbers]) -> list[int]:
    """Merge the step numbers of several workers, each once, in ascending order."""
    # The index of one worker is sorted already.
    if len(parts) == 1:
        return [int(number) for number in parts[0]]
    return sorted({int(number) for part in parts for number in part})


class _GrowingArray:
    """An array with spare capacity at its end."""

    def __init__(self, dtype: Any) -> None:
        self._buffer: NDArray[Any] = np.empty(_INITIAL_CAPACITY, dtype)
        self.size = 0

    @property
    def array(self) -> NDArray[Any]:
        return self._buffer[: self.size]

    def extend(self, values: NDArray[Any]) -> None:
        needed = self.size + len(values)
        if needed > len(self._buffer):
            buffer = np.empty(max(needed, 2 * len(self._buffer)), self._buffer.dtype)
            buffer[: self.size] = self.array
            self._buffer = buffer
        self._buffer[self.size : needed] = values
        self.size = needed
