"""Which steps a worker has told of, in rising order, to be found by their number or by that in their mode."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Mode
from trainyard.formats.tensors.layout import MODES

Numbers = NDArray[np.int64]

_FIRST_ROOM = 256


class StepIndex:
    """Rows of steps that grow at the end; finding one takes the time of a binary search."""

    def __init__(self) -> None:
        self._rows = {
            "numbers": _Growing(np.int64),
            "modes": _Growing(np.uint8),
            "mode_steps": _Growing(np.int64),
            "at_us": _Growing(np.int64),
            "is_saved": _Growing(np.bool_),
        }
        self._of_mode = {mode: _Growing(np.int64) for mode in MODES}  # rows

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
        """The modes of rows, by their places in `MODES`."""
        return self._rows["modes"].array[rows]

    def modes(self) -> set[Mode]:
        return {mode for mode, rows in self._of_mode.items() if rows.size}

    def rows(self, mode: Mode = Mode.GLOBAL) -> Numbers:
        """The rows of the steps of a mode, or of all."""
        return np.arange(len(self)) if mode is Mode.GLOBAL else self._of_mode[mode].array

    def labels(self, rows: Numbers, mode: Mode = Mode.GLOBAL) -> Numbers:
        """By which number rows are called where a mode is spoken of."""
        return (self.numbers if mode is Mode.GLOBAL else self.mode_steps)[rows]

    def row(self, step: int, mode: Mode = Mode.GLOBAL) -> int | None:
        """Where a step is, by its number, or with a mode by that in the mode."""
        rows = None if mode is Mode.GLOBAL else self._of_mode[mode].array
        labels = self.numbers if rows is None else self.mode_steps[rows]
        place = int(np.searchsorted(labels, step))
        if place == len(labels) or labels[place] != step:
            return None
        return place if rows is None else int(rows[place])

    def last_of(self, mode: Mode, *, until: float) -> int:
        """The number in its mode of the last step that comes no later than the step `until`; -1 where there is none."""
        rows = self.rows(mode)
        count = int(np.searchsorted(self.numbers[rows], until, side="right"))
        return int(self.labels(rows[count - 1 : count], mode)[0]) if count else -1

    def append(self, **columns: NDArray[Any]) -> None:
        """Add rows, whose numbers rise and are larger than all there are."""
        first = len(self)
        for name, rows in self._rows.items():
            rows.extend(columns[name])
        for number, mode in enumerate(MODES):
            self._of_mode[mode].extend(first + np.flatnonzero(columns["modes"] == number))

    def cut(self, size: int) -> None:
        """Forget all rows from one on."""
        for rows in self._rows.values():
            rows.size = size
        for rows in self._of_mode.values():
            rows.size = int(np.searchsorted(rows.array, size))


def united(parts: Sequence[Numbers]) -> list[int]:
    """All numbers of some arrays, each once, in rising order."""
    if len(parts) == 1:  # the index of one worker rises as it is
        return [int(number) for number in parts[0]]
    return sorted({int(number) for part in parts for number in part})


class _Growing:
    """An array with room at its end."""

    def __init__(self, dtype: Any) -> None:
        self._room: NDArray[Any] = np.empty(_FIRST_ROOM, dtype)
        self.size = 0

    @property
    def array(self) -> NDArray[Any]:
        return self._room[: self.size]

    def extend(self, values: NDArray[Any]) -> None:
        needed = self.size + len(values)
        if needed > len(self._room):
            room = np.empty(max(needed, 2 * len(self._room)), self._room.dtype)
            room[: self.size] = self.array
            self._room = room
        self._room[self.size : needed] = values
        self.size = needed
