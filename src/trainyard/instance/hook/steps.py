"""A step on its way from the training thread, where it is opened, to the writer, which resolves its numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import ABSENT, Mode, Scalars, Statistic, Statistics, Step, TensorTable, Values
from trainyard.formats.tensors.encoding.safetensors import RawTensor
from trainyard.formats.tensors.statistics.histograms import Counts

COLUMNS = len(Statistic)
_LINEAR = (Statistic.MEAN, Statistic.STD, Statistic.MEAN_ABS, Statistic.MIN, Statistic.MAX)
_COUNTED = (Statistic.ZEROS, Statistic.NANS, Statistic.INFS)


class ReducedNumbers(Protocol):
    """The result of a reducer: `statistics.contract.StepStatistics`, which can only be imported with torch."""

    @property
    def statistics(self) -> Statistics: ...

    @property
    def measures(self) -> Values: ...

    @property
    def scalars(self) -> Scalars: ...

    @property
    def histogram_places(self) -> tuple[int, ...]: ...

    @property
    def histograms(self) -> Counts | None: ...


class PendingNumbers(Protocol):
    """Numbers that a device may still be computing."""

    def is_ready(self) -> bool: ...

    def result(self) -> ReducedNumbers: ...


@dataclass(frozen=True, slots=True)
class PendingPart:
    """Pending numbers of some tensors: `table` describes them, `places` is where they are in the worker's table.

    Without `places`, the part is the beginning of the worker's table, as it was before it grew.
    """

    table: TensorTable
    pending: PendingNumbers
    places: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TensorRow:
    """The numbers of a tensor that are known right away."""

    statistics: Statistics
    scalar: float


@dataclass(frozen=True, slots=True)
class RawCopy:
    """A copy of a tensor that can be fetched on another thread."""

    size_bytes: int
    fetch: Callable[[], "RawTensor | NDArray[Any]"]


@dataclass(slots=True)
class OpenStep:
    """A step so far. The training thread fills it, then hands it over to the writer thread."""

    number: int
    mode: Mode
    mode_step: int
    at_us: int
    # The collections saved in this step.
    due: frozenset[str]
    # Whether the budget covers statistics that nobody asked to save.
    is_full: bool
    parts: list[PendingPart] = field(default_factory=list)
    rows: dict[int, TensorRow] = field(default_factory=dict)
    # Tensors of one element that are known right away.
    numbers: dict[int, float] = field(default_factory=dict)
    values: dict[str, RawCopy] = field(default_factory=dict)
    saved: set[int] = field(default_factory=set)
    # Of tensors whose size differs from the table's.
    sizes: dict[int, int] = field(default_factory=dict)
    # To multiply tensors by.
    factors: dict[int, Callable[[], float]] = field(default_factory=dict)
    # How many tensors of each module were observed.
    calls: dict[str, int] = field(default_factory=dict)
    # How long devices were busy for the hook.
    device_ns: list[Callable[[], int]] = field(default_factory=list)
    # How many tensors the budget excluded.
    lacks: int = 0
    # Whether the program may still add to the step after it was handed over, and whether this is such an addition.
    may_be_amended: bool = False
    amends: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(raw.size_bytes for raw in self.values.values())

    @property
    def is_ready(self) -> bool:
        return all(part.pending.is_ready() for part in self.parts)


@dataclass(frozen=True, slots=True)
class ResolvedStep:
    """A step with its numbers, and the histograms of some tensors by their places."""

    step: Step
    histogram_places: tuple[int, ...] = ()
    histograms: Counts | None = None


def amend(resolved: ResolvedStep, addition: ResolvedStep) -> ResolvedStep:
    """Add what the program recorded after it had handed a step over. The addition's table has the step's places."""
    before, late = resolved.step, addition.step
    tensors = len(before.table.tensors)
    statistics, saved = late.statistics.copy(), late.saved.copy()
    is_kept = statistics[:tensors, Statistic.NANS] == ABSENT
    statistics[:tensors][is_kept] = before.statistics[is_kept]
    saved[:tensors] |= before.saved
    scalars = dict(zip(before.table.scalars, before.scalars, strict=True))
    measures = dict(zip(before.table.measures, before.measures, strict=True))
    step = replace(
        late,
        statistics=statistics,
        measures=_fill(late.measures, [measures.get(each, np.nan) for each in late.table.measures]),
        scalars=_fill(late.scalars, [scalars.get(place, np.nan) for place in late.table.scalars]),
        lacks=before.lacks + late.lacks,
        saved=saved,
    )
    return replace(addition, step=step)


class StepResolver:
    """Turns open steps into steps. Caches the positions in a table while the table stays the same."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._positions = _TablePositions(TensorTable(()))

    def resolve(self, open_step: OpenStep, table: TensorTable) -> ResolvedStep:
        """Wait for the numbers of a step and merge them."""
        if self._positions.table is not table:
            self._positions = _TablePositions(table)
        merged = _MergedNumbers(self._positions)
        for part in open_step.parts:
            merged.add(part)
        for place, row in open_step.rows.items():
            merged.set(place, row)
        for place, number in open_step.numbers.items():
            merged.set(place, _row_of_number(number))
        for place, factor in open_step.factors.items():
            merged.multiply(place, factor())
        merged.fit(open_step.sizes)
        histograms = np.concatenate(merged.histograms) if merged.histograms else None
        return ResolvedStep(self._step(open_step, merged), tuple(merged.histogram_places), histograms)

    def _step(self, open_step: OpenStep, merged: "_MergedNumbers") -> Step:
        table = self._positions.table
        saved = np.zeros(len(table.tensors), bool)
        saved[list(open_step.saved)] = True
        return Step(
            number=open_step.number,
            mode=open_step.mode,
            mode_step=open_step.mode_step,
            at_us=open_step.at_us,
            worker=self._worker,
            table=table,
            statistics=merged.statistics,
            measures=merged.measures,
            scalars=merged.scalars,
            lacks=open_step.lacks,
            saved=saved,
        )


def row_of(values: NDArray[np.generic]) -> TensorRow:
    """Return the statistics of an array."""
    flat = np.asarray(values, np.float64).ravel()
    if not flat.size:
        return TensorRow(np.array([0, 0, 0, 0, 0, 0, ABSENT, 0], np.float32), np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        row = [flat.mean(), flat.std(), np.abs(flat).mean(), flat.min(), flat.max()]
        counts = [np.count_nonzero(flat == 0), np.count_nonzero(np.isnan(flat)), np.count_nonzero(np.isinf(flat))]
        return TensorRow(
            np.array(row + counts, np.float64).astype(np.float32), float(flat[0]) if flat.size == 1 else np.nan
        )


def _row_of_number(value: float) -> TensorRow:
    is_nan, is_infinite = value != value, abs(value) == np.inf
    spread = np.nan if is_nan or is_infinite else 0.0
    row = (value, spread, abs(value), value, value, value == 0, is_nan, is_infinite)
    with np.errstate(over="ignore"):
        return TensorRow(np.array(row, np.float64).astype(np.float32), value)


def _fill(values: NDArray[Any], defaults: list[Any]) -> NDArray[Any]:
    """Return values with those that are not a number replaced."""
    return np.where(np.isnan(values), np.array(defaults, values.dtype), values)


class _TablePositions:
    """Where scalars and measures are stored in the steps of a table."""

    def __init__(self, table: TensorTable) -> None:
        self.table = table
        self.scalars = {place: index for index, place in enumerate(table.scalars)}
        self.measures = {(measure.tensor, measure.probe): index for index, measure in enumerate(table.measures)}


class _MergedNumbers:
    """The numbers of all tensors of a step, added part by part."""

    def __init__(self, positions: _TablePositions) -> None:
        self._positions = positions
        self.statistics = np.zeros((len(positions.table.tensors), COLUMNS), np.float32)
        self.statistics[:, Statistic.NANS] = ABSENT
        self.measures = np.full(len(positions.table.measures), np.nan, np.float32)
        self.scalars = np.full(len(positions.scalars), np.nan, np.float64)
        self.histogram_places: list[int] = []
        self.histograms: list[Counts] = []

    def add(self, part: PendingPart) -> None:
        numbers = part.pending.result()
        places = np.arange(len(part.table.tensors)) if part.places is None else np.array(part.places, np.intp)
        present = numbers.statistics[:, Statistic.NANS] != ABSENT
        self.statistics[places[present]] = numbers.statistics[present]
        for value, place in zip(numbers.scalars, part.table.scalars, strict=True):
            if present[place]:
                self._set_scalar(int(places[place]), float(value))
        if part.places is None:
            self.measures[: len(numbers.measures)] = numbers.measures
        else:
            self._add_measures(part.table, numbers.measures, places=part.places)
        if numbers.histograms is not None:
            self.histogram_places += [int(places[place]) for place in numbers.histogram_places]
            self.histograms.append(numbers.histograms)

    def set(self, place: int, row: TensorRow) -> None:
        self.statistics[place] = row.statistics
        self._set_scalar(place, row.scalar)

    def multiply(self, place: int, factor: float) -> None:
        if self.statistics[place, Statistic.NANS] == ABSENT:
            return
        self.statistics[place, _LINEAR] *= factor
        position = self._positions.scalars.get(place)
        if position is not None:
            self.scalars[position] *= factor

    def fit(self, sizes: Mapping[int, int]) -> None:
        """Rescale counts of tensors whose size differs from the table's, as in a last, smaller batch."""
        for place, size in sizes.items():
            if size and self.statistics[place, Statistic.NANS] != ABSENT:
                self.statistics[place, _COUNTED] *= self._positions.table.tensors[place].size / size

    def _set_scalar(self, place: int, value: float) -> None:
        position = self._positions.scalars.get(place)
        if position is not None:
            self.scalars[position] = value

    def _add_measures(self, table: TensorTable, values: Values, *, places: tuple[int, ...]) -> None:
        for value, measure in zip(values, table.measures, strict=True):
            self.measures[self._positions.measures[places[measure.tensor], measure.probe]] = value
