"""How rules read steps: the tensors they choose, their statistics, and the history of those.

All tensors of a step are read at once, as arrays in the table's order, since a thousand tensors must take a rule well
under a millisecond. The choice is computed once per table.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import (
    ABSENT,
    Kind,
    Mode,
    Probe,
    Statistic,
    Statistics,
    Step,
    TensorInfo,
    TensorTable,
)
from trainyard.insight.rules.contract import Evidence, Need
from trainyard.insight.rules.probes import UPDATES, probe_values

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
_Series = tuple[str, Mode]
_Raw = Mapping[str, NDArray[np.generic]]

# The first finding says how many there are in all.
MAX_FINDINGS_PER_STEP = 16
# Tables whose choices are cached; a training has one or two per worker.
MAX_TABLES = 64
EVIDENCE_STEPS = 64

KINDS = {
    "weights": Kind.WEIGHT,
    "biases": Kind.BIAS,
    "gradients": Kind.GRADIENT,
    "losses": Kind.LOSS,
    "optimizer_variables": Kind.OPTIMIZER,
}


@dataclass(frozen=True, eq=False)
class ChosenTensors:
    """The tensors of a table that a rule reads, in the table's order.

    `places` are their indices in the table, and `scalars` those in the step's scalars, or -1 for tensors with several
    elements. `is_trained` marks tensors with a gradient; all, if the table has no gradients. `is_leading` marks all but
    vectors, such as biases, of modules that have a matrix here. `probed` are the indices in the step's measures, or -1.
    """

    tensors: tuple[TensorInfo, ...]
    places: Places
    scalars: Places
    sizes: Numbers
    is_trained: Flags
    is_leading: Flags
    probed: dict[Probe, Places] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tensors)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)


@dataclass(frozen=True, eq=False)
class Reading:
    """The statistics of the chosen tensors in a step, one row each; `before` has their last saved values."""

    step: Step
    chosen: ChosenTensors
    rows: Statistics
    before: Mapping[str, _Raw] = field(default_factory=dict)

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return self.chosen.tensors

    @property
    def is_seen(self) -> Flags:
        """Which of the tensors were observed in this step."""
        return np.asarray(self.rows[:, Statistic.NANS] != ABSENT)

    def column(self, column: Statistic) -> Numbers:
        """Return a statistic of each tensor; NaN for those not observed."""
        return np.where(self.is_seen, self.rows[:, column], np.nan).astype(np.float64)

    def values(self) -> Numbers:
        """Return the exact value of tensors with one element, and the mean of others; NaN for those not observed."""
        means = self.column(Statistic.MEAN)
        places = self.chosen.scalars
        exact = (places >= 0) & self.is_seen
        means[exact] = self.step.scalars[places[exact]]
        return means

    def measure(self, probe: Probe) -> Numbers:
        """Return a probe of each tensor, from its raw value if the hook did not measure it; NaN if there is neither."""
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
    """Reads the tensors that match a need, and that `keep` accepts, from every step."""

    def __init__(self, need: Need, keep: Callable[[TensorInfo], bool] = lambda _tensor: True) -> None:
        self._collections = frozenset(need.collections)
        self._kinds = frozenset(KINDS[name] for name in need.collections if name in KINDS)
        self._regexes = tuple(re.compile(regex) for regex in need.regexes)
        self._keep = keep
        self._chosen: dict[int, tuple[TensorTable, ChosenTensors]] = {}
        self._is_comparing = any(probe.word in UPDATES for probe in need.probes)
        self._saved: dict[_Series, Mapping[str, _Raw]] = {}

    def read(self, step: Step) -> Reading:
        chosen, series = self.choose(step.table), (step.worker, step.mode)
        before = self._saved.get(series, {})
        if self._is_comparing and step.values:
            # The values themselves are read lazily: most steps have measures, and raw tensors may be large.
            self._saved[series] = {**before, **{name: step.values for name in chosen.names if name in step.values}}
        return Reading(step, chosen, step.statistics[chosen.places], before)

    def choose(self, table: TensorTable) -> ChosenTensors:
        """Return the tensors of a table that this reader reads."""
        # Cached by identity, since comparing or hashing a table takes as long as choosing. Keeping the table keeps its
        # id from being reused.
        known = self._chosen.get(id(table))
        if known is not None:
            return known[1]
        if len(self._chosen) >= MAX_TABLES:
            self._chosen.clear()
        chosen = self._choose(table)
        self._chosen[id(table)] = (table, chosen)
        return chosen

    def _choose(self, table: TensorTable) -> ChosenTensors:
        places = [place for place, tensor in enumerate(table.tensors) if self._wants(tensor)]
        among_scalars = {place: index for index, place in enumerate(table.scalars)}
        tensors = tuple(table.tensors[place] for place in places)
        has_gradients = any(tensor.kind is Kind.GRADIENT for tensor in table.tensors)
        multiplying = {tensor.module for tensor in tensors if is_matrix(tensor)}
        return ChosenTensors(
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
    """A number of each tensor at the last steps, per worker and mode, as evidence for findings."""

    def __init__(self, depth: int = EVIDENCE_STEPS) -> None:
        self._depth = depth
        self._rings: dict[_Series, _Ring] = {}

    def add(self, reading: Reading, numbers: Numbers) -> None:
        ring = self._rings.get(_series(reading))
        if ring is None:
            ring = self._rings[_series(reading)] = _Ring(reading.chosen, self._depth)
        ring.fit(reading.chosen)
        ring.add(reading.step.number, numbers)

    def evidence(self, reading: Reading, index: int, *, label: str) -> Evidence:
        """Return the numbers of the tensor at `index`, up to this reading."""
        return self._rings[_series(reading)].evidence(index, label)


class Streaks:
    """For how many consecutive steps something was true of each tensor, per worker and mode."""

    def __init__(self) -> None:
        self._counts: dict[_Series, tuple[ChosenTensors, Places]] = {}

    def count(self, reading: Reading, hits: Flags) -> Places:
        """Return the streaks including this step; a tensor that was not observed keeps its streak."""
        series, chosen = _series(reading), reading.chosen
        before, counts = self._counts.get(series, (chosen, np.zeros(len(chosen), dtype=np.intp)))
        if before is not chosen:
            moved, is_known = _match_tensors(before, chosen)
            counts = np.where(is_known, counts[moved], 0) if len(counts) else np.zeros(len(moved), dtype=np.intp)
        counts = np.where(hits, counts + 1, np.where(reading.is_seen, 0, counts))
        self._counts[series] = (chosen, counts)
        return counts


class Track:
    """One number at the last steps, as evidence for a finding that is not about a single tensor."""

    def __init__(self) -> None:
        self._numbers: deque[tuple[int, float]] = deque(maxlen=EVIDENCE_STEPS)

    def add(self, step: int, number: float) -> None:
        self._numbers.append((step, number))

    def evidence(self, label: str) -> Evidence:
        return Evidence(label, [step for step, _ in self._numbers], [number for _, number in self._numbers])


class KeptRows:
    """A row of statistics per tensor that is remembered across steps, per worker and mode."""

    def __init__(self) -> None:
        self._rows: dict[_Series, tuple[ChosenTensors, Statistics]] = {}

    def keep(self, reading: Reading, rows: Statistics) -> None:
        self._rows[_series(reading)] = (reading.chosen, rows)

    def rows(self, reading: Reading) -> Statistics:
        """Return the remembered rows of the tensors of this reading; NaN for tensors without one."""
        nothing = np.full_like(reading.rows, np.nan)
        before, rows = self._rows.get(_series(reading), (reading.chosen, nothing))
        if before is reading.chosen:
            return rows
        moved, is_known = _match_tensors(before, reading.chosen)
        return np.where(is_known[:, None], rows[moved], nothing) if len(before) else nothing


def is_matrix(tensor: TensorInfo) -> bool:
    """Return whether a layer multiplies by this tensor, instead of adding it or scaling with it."""
    return len(tensor.whole_shape or tensor.shape) > 1


def worst(hits: Flags, badness: Numbers) -> Sequence[int]:
    """Return the indices of the hits, the worst first, up to the maximum per step."""
    indices = np.flatnonzero(hits)
    order = np.argsort(-badness[indices], kind="stable")
    return [int(index) for index in indices[order][:MAX_FINDINGS_PER_STEP]]


def duration_text(patience: int) -> str:
    """Return for how many steps something was so, as part of a sentence; empty for a single step."""
    return f" for {patience} steps" if patience > 1 else ""


def others_text(hits: Flags) -> str:
    """Return how many other tensors are hit, as the end of a sentence about one of them."""
    count = int(np.count_nonzero(hits)) - 1
    return f"; {count} {'others are' if count > 1 else 'other is'} as bad" if count > 0 else ""


def trains(step: Step) -> bool:
    """Return whether this is a training step, as far as the program says."""
    return step.mode in (Mode.TRAIN, Mode.GLOBAL)


def _series(reading: Reading) -> _Series:
    return reading.step.worker, reading.step.mode


class _Ring:
    def __init__(self, chosen: ChosenTensors, depth: int) -> None:
        self._chosen = chosen
        self._steps = np.zeros(depth, dtype=np.int64)
        self._rows = np.full((depth, len(chosen)), np.nan)
        self._count = 0

    def fit(self, chosen: ChosenTensors) -> None:
        """Rearrange the rows for the tensors that are chosen now."""
        if chosen is self._chosen:
            return
        moved, is_known = _match_tensors(self._chosen, chosen)
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


def _match_tensors(before: ChosenTensors, now: ChosenTensors) -> tuple[Places, Flags]:
    """Return the previous index of each tensor, and which of them existed before."""
    places = {name: index for index, name in enumerate(before.names)}
    moved = np.array([places.get(name, -1) for name in now.names], dtype=np.intp)
    return np.maximum(moved, 0), moved >= 0


def _measures(table: TensorTable, places: Places, probe: Probe) -> Places:
    known = {measure.tensor: index for index, measure in enumerate(table.measures) if measure.probe == probe}
    return np.array([known.get(int(place), -1) for place in places], dtype=np.intp)
