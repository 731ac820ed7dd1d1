"""How rules read steps: which tensors they chose, what is known of them, and what it was before.

All tensors of a step are read at once, as arrays in the table's order, since a thousand of them must take a rule well
under a millisecond. What is chosen is worked out once for each table.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import (
    ABSENT,
    Column,
    Kind,
    Mode,
    Probe,
    Statistics,
    Step,
    TensorInfo,
    TensorTable,
)
from trainyard.insight.rules.contract import Evidence, Need
from trainyard.insight.rules.probing import UPDATES, probe_values

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
_Series = tuple[str, Mode]
_Raw = Mapping[str, NDArray[np.generic]]

TELLING = 16  # findings of one step that are worth telling; the first says how many there are
TABLES = 64  # whose choices are kept; a training has one or two for each worker
LOOK_BACK = 64  # steps that evidence shows

KINDS = {
    "weights": Kind.WEIGHT,
    "biases": Kind.BIAS,
    "gradients": Kind.GRADIENT,
    "losses": Kind.LOSS,
    "optimizer_variables": Kind.OPTIMIZER,
}


@dataclass(frozen=True, eq=False)
class Chosen:
    """The tensors of a table that a rule looks at, in the table's order."""

    tensors: tuple[TensorInfo, ...]
    places: Places  # in the table
    scalars: Places  # in the step's scalars; -1 for a tensor with several elements
    sizes: Numbers
    is_trained: Flags  # which have a gradient; all, where the table has no gradients
    is_leading: Flags  # all but the vectors, such as biases, of modules that have a matrix here
    probed: dict[Probe, Places] = field(default_factory=dict)  # in the step's measures; -1 for what is not measured

    def __len__(self) -> int:
        return len(self.tensors)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)


@dataclass(frozen=True, eq=False)
class Reading:
    """What a step tells of the chosen tensors: a row of statistics for each."""

    step: Step
    chosen: Chosen
    rows: Statistics
    before: Mapping[str, _Raw] = field(default_factory=dict)  # of each tensor, the values with which it was saved last

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return self.chosen.tensors

    @property
    def is_seen(self) -> Flags:
        """Which of the tensors were looked at in this step."""
        return np.asarray(self.rows[:, Column.NANS] != ABSENT)

    def column(self, column: Column) -> Numbers:
        """A statistic of each tensor; what was not looked at is NaN."""
        return np.where(self.is_seen, self.rows[:, column], np.nan).astype(np.float64)

    def values(self) -> Numbers:
        """The exact value of each tensor with one element, the mean of any other; what was not looked at is NaN."""
        means = self.column(Column.MEAN)
        places = self.chosen.scalars
        exact = (places >= 0) & self.is_seen
        means[exact] = self.step.scalars[places[exact]]
        return means

    def measured(self, probe: Probe) -> Numbers:
        """The probe of each tensor, taken of its raw value if the hook did not; NaN where that is not at hand."""
        places = self.chosen.probed.get(probe)
        if places is None:
            places = self.chosen.probed[probe] = _measures(self.step.table, self.chosen.places, probe)
        taken = np.full(len(places), np.nan)
        taken[places >= 0] = self.step.measures[places[places >= 0]]
        for index in np.flatnonzero(places < 0) if self.step.values else ():
            name = self.tensors[index].name
            if name in self.step.values:
                before = self.before[name][name] if name in self.before else None
                taken[index] = probe_values(probe, self.step.values[name], before)
        return np.where(self.is_seen, taken, np.nan)


class Reader:
    """Reads of every step the tensors that a need names, or those of them that `keep` lets through."""

    def __init__(self, need: Need, keep: Callable[[TensorInfo], bool] = lambda _tensor: True) -> None:
        self._collections = frozenset(need.collections)
        self._kinds = frozenset(KINDS[name] for name in need.collections if name in KINDS)
        self._regexes = tuple(re.compile(regex) for regex in need.regexes)
        self._keep = keep
        self._chosen: dict[int, tuple[TensorTable, Chosen]] = {}
        self._is_comparing = any(probe.word in UPDATES for probe in need.probes)
        self._saved: dict[_Series, Mapping[str, _Raw]] = {}

    def read(self, step: Step) -> Reading:
        chosen, series = self.choose(step.table), (step.worker, step.mode)
        before = self._saved.get(series, {})
        if self._is_comparing and step.values:
            # The values are read when they are looked at: most steps have measures, and raw tensors may be large.
            self._saved[series] = {**before, **{name: step.values for name in chosen.names if name in step.values}}
        return Reading(step, chosen, step.statistics[chosen.places], before)

    def choose(self, table: TensorTable) -> Chosen:
        """The tensors of a table that are read."""
        # By identity, since to compare or hash a table would take as long as to choose; keeping it keeps its id.
        known = self._chosen.get(id(table))
        if known is not None:
            return known[1]
        if len(self._chosen) >= TABLES:
            self._chosen.clear()
        chosen = self._choose(table)
        self._chosen[id(table)] = (table, chosen)
        return chosen

    def _choose(self, table: TensorTable) -> Chosen:
        places = [place for place, tensor in enumerate(table.tensors) if self._wants(tensor)]
        among_scalars = {place: index for index, place in enumerate(table.scalars)}
        tensors = tuple(table.tensors[place] for place in places)
        has_gradients = any(tensor.kind is Kind.GRADIENT for tensor in table.tensors)
        multiplying = {tensor.module for tensor in tensors if is_matrix(tensor)}
        return Chosen(
            tensors,
            np.array(places, dtype=np.intp),
            np.array([among_scalars.get(place, -1) for place in places], dtype=np.intp),
            np.array([tensor.size for tensor in tensors], dtype=np.float64),
            np.array([not has_gradients or f"gradient/{each.name}" in table.places for each in tensors], dtype=bool),
            np.array([is_matrix(tensor) or tensor.module not in multiplying for tensor in tensors], dtype=bool),
        )

    def _wants(self, tensor: TensorInfo) -> bool:
        is_named = (
            "all" in self._collections
            or tensor.kind in self._kinds
            or not self._collections.isdisjoint(tensor.collections)
            or any(regex.search(tensor.name) for regex in self._regexes)
        )
        return is_named and self._keep(tensor)


class History:
    """What a number of each tensor was at the last steps, for each worker and mode: evidence for findings."""

    def __init__(self, depth: int = LOOK_BACK) -> None:
        self._depth = depth
        self._rings: dict[_Series, _Ring] = {}

    def add(self, reading: Reading, numbers: Numbers) -> None:
        ring = self._rings.get(_series(reading))
        if ring is None:
            ring = self._rings[_series(reading)] = _Ring(reading.chosen, self._depth)
        ring.fit(reading.chosen)
        ring.add(reading.step.number, numbers)

    def evidence(self, reading: Reading, index: int, *, label: str) -> Evidence:
        """The numbers up to this reading of the tensor that is its index-th."""
        return self._rings[_series(reading)].evidence(index, label)


class Streaks:
    """For how many steps on end something was true of each tensor, for each worker and mode."""

    def __init__(self) -> None:
        self._counts: dict[_Series, tuple[Chosen, Places]] = {}

    def count(self, reading: Reading, hits: Flags) -> Places:
        """The streaks with this step; a tensor that it did not look at keeps its own."""
        series, chosen = _series(reading), reading.chosen
        before, counts = self._counts.get(series, (chosen, np.zeros(len(chosen), dtype=np.intp)))
        if before is not chosen:
            moved, is_known = _moved(before, chosen)
            counts = np.where(is_known, counts[moved], 0) if len(counts) else np.zeros(len(moved), dtype=np.intp)
        counts = np.where(hits, counts + 1, np.where(reading.is_seen, 0, counts))
        self._counts[series] = (chosen, counts)
        return counts


class Track:
    """What one number was at the last steps: evidence for a finding that is of no single tensor."""

    def __init__(self) -> None:
        self._numbers: deque[tuple[int, float]] = deque(maxlen=LOOK_BACK)

    def add(self, step: int, number: float) -> None:
        self._numbers.append((step, number))

    def evidence(self, label: str) -> Evidence:
        return Evidence(label, [step for step, _ in self._numbers], [number for _, number in self._numbers])


class Kept:
    """A row for each tensor that is kept from one step to another, for each worker and mode."""

    def __init__(self) -> None:
        self._rows: dict[_Series, tuple[Chosen, Statistics]] = {}

    def keep(self, reading: Reading, rows: Statistics) -> None:
        self._rows[_series(reading)] = (reading.chosen, rows)

    def rows(self, reading: Reading) -> Statistics:
        """What was kept of the tensors of this reading; NaN for one of which nothing was."""
        nothing = np.full_like(reading.rows, np.nan)
        before, rows = self._rows.get(_series(reading), (reading.chosen, nothing))
        if before is reading.chosen:
            return rows
        moved, is_known = _moved(before, reading.chosen)
        return np.where(is_known[:, None], rows[moved], nothing) if len(before) else nothing


def is_matrix(tensor: TensorInfo) -> bool:
    """Whether a layer multiplies by it, as opposed to what is added or scales."""
    return len(tensor.whole_shape or tensor.shape) > 1


def worst(hits: Flags, badness: Numbers) -> Sequence[int]:
    """The indices of those that are hit, the worst first, as many as are worth telling."""
    indices = np.flatnonzero(hits)
    order = np.argsort(-badness[indices], kind="stable")
    return [int(index) for index in indices[order][:TELLING]]


def trains(step: Step) -> bool:
    """Whether the model learns in this step, as far as the program has said."""
    return step.mode in (Mode.TRAIN, Mode.GLOBAL)


def _series(reading: Reading) -> _Series:
    return reading.step.worker, reading.step.mode


class _Ring:
    def __init__(self, chosen: Chosen, depth: int) -> None:
        self._chosen = chosen
        self._steps = np.zeros(depth, dtype=np.int64)
        self._rows = np.full((depth, len(chosen)), np.nan)
        self._count = 0

    def fit(self, chosen: Chosen) -> None:
        """Keeps what is known of the tensors that are chosen now, in their order."""
        if chosen is self._chosen:
            return
        moved, is_known = _moved(self._chosen, chosen)
        known = self._rows[:, moved] if self._rows.shape[1] else np.full((len(self._steps), len(moved)), np.nan)
        self._rows = np.where(is_known, known, np.nan)
        self._chosen = chosen

    def add(self, step: int, numbers: Numbers) -> None:
        place = self._count % len(self._steps)
        self._steps[place], self._rows[place] = step, numbers
        self._count += 1

    def evidence(self, index: int, label: str) -> Evidence:
        order = self._order()
        numbers = self._rows[order, index]
        is_known = ~np.isnan(numbers)
        return Evidence(label, self._steps[order][is_known].tolist(), numbers[is_known].tolist())

    def _order(self) -> Places:
        depth = len(self._steps)
        return np.arange(max(0, self._count - depth), self._count, dtype=np.intp) % depth


def _moved(before: Chosen, now: Chosen) -> tuple[Places, Flags]:
    """Where each tensor of now was before, and which of them were there at all."""
    places = {name: index for index, name in enumerate(before.names)}
    moved = np.array([places.get(name, -1) for name in now.names], dtype=np.intp)
    return np.maximum(moved, 0), moved >= 0


def _measures(table: TensorTable, places: Places, probe: Probe) -> Places:
    known = {measure.tensor: index for index, measure in enumerate(table.measures) if measure.probe == probe}
    return np.array([known.get(int(place), -1) for place in places], dtype=np.intp)
