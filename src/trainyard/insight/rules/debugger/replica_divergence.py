"""Replicas of a model that are no longer the same."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Mode, Probe, Statistic, Statistics, Step, TensorInfo
from trainyard.formats.tensors.statistics.probes import CHECKSUM
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Severity
from trainyard.insight.rules.parameters import COLLECTION_NAMES, TENSOR_REGEX, tensors_to_inspect
from trainyard.insight.rules.readings import (
    ChosenTensors,
    Flags,
    History,
    Numbers,
    Places,
    Reader,
    Reading,
    others_text,
    trains,
    worst,
)

BYTES = Probe(CHECKSUM)
# These are the same to the last bit, in whichever order a kernel processes a tensor.
EXACT = [Statistic.MIN, Statistic.MAX, Statistic.ZEROS, Statistic.NANS, Statistic.INFS]
# How far a worker may be behind the first one.
MAX_LAG_STEPS = 256


@dataclass(slots=True)
class _Replicas:
    """The first worker's readings of the last steps, which the others are compared with.

    `last` is the last step of each worker.
    """

    readings: dict[tuple[Mode, int], Reading] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    known: dict[tuple[int, int], tuple[ChosenTensors, ChosenTensors, Places]] = field(default_factory=dict)

    def first(self, reading: Reading) -> Reading:
        """Return the reading of the same step by the worker that reported it first, which may be this one."""
        step = reading.step
        if step.number <= self.last.get(step.worker, -1):
            # The training went back to a checkpoint, so the earlier readings of these steps are void.
            self.readings = {key: kept for key, kept in self.readings.items() if key[1] < step.number}
        self.last[step.worker] = step.number
        found = self.readings.setdefault((step.mode, step.number), reading)
        if len(self.readings) > MAX_LAG_STEPS:
            del self.readings[next(iter(self.readings))]
        return found

    def places(self, reading: Reading, first: Reading) -> Places:
        """Return the index of each tensor at the first worker; -1 if it lacks it, or has another shape."""
        ours, theirs = reading.chosen, first.chosen
        # Both objects are kept, so their ids cannot be reused.
        key = (id(ours), id(theirs))
        if key not in self.known:
            shapes = {tensor.name: (place, tensor.shape) for place, tensor in enumerate(theirs.tensors)}
            found = [(tensor, *shapes.get(tensor.name, (-1, ()))) for tensor in ours.tensors]
            places = [place if tensor.shape == shape else -1 for tensor, place, shape in found]
            self.known[key] = (ours, theirs, np.array(places, dtype=np.intp))
        return self.known[key][2]


class ReplicaDivergence(DebuggerRule):
    """Finds ranks whose weights differ from those of the first rank."""

    name = "ReplicaDivergence"
    parameters = (COLLECTION_NAMES, TENSOR_REGEX)

    def __init__(self, *, collection_names: tuple[str, ...] | None, tensor_regex: tuple[str, ...] | None) -> None:
        chosen = tensors_to_inspect(self.name, collection_names, regexes=tensor_regex, otherwise=("weights", "biases"))
        self._needs = Need(chosen.collections, chosen.regexes, probes=(BYTES,), is_of_all_workers=True)
        self._reader, self._history, self._replicas = Reader(self._needs, _is_whole), History(), _Replicas()

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        if not trains(step):
            return
        reading = self._reader.read(step)
        self._history.add(reading, reading.column(Statistic.MEAN))
        first = self._replicas.first(reading)
        if first.step.worker == step.worker or not len(reading.tensors):
            return
        places = self._replicas.places(reading, first)
        hits = _differ(reading, first, places)
        sizes = np.abs(reading.column(Statistic.MEAN) - _select(first.column(Statistic.MEAN), places))
        for index in worst(hits, np.nan_to_num(sizes, nan=np.inf)):
            yield self._finding(reading, first, index=index, place=int(places[index]), hits=hits)

    def _finding(self, reading: Reading, first: Reading, *, index: int, place: int, hits: Flags) -> Finding:
        tensor, step = reading.tensors[index], reading.step
        rank = first.step.worker
        ours, theirs = (float(each.rows[at, Statistic.MEAN]) for each, at in ((reading, index), (first, place)))
        series = [(step.worker, reading, index), (rank, first, place)]
        evidence = [(worker, self._history.evidence(each, at, label="")) for worker, each, at in series]
        return Finding.at(
            step,
            tensor,
            f"{tensor.name} of {step.worker} differs from that of {rank}: its mean is {ours:.9g} instead of "
            f"{theirs:.9g}{others_text(hits)}.",
            value=ours,
            threshold=theirs,
            severity=Severity.CRITICAL,
            evidence=tuple(Evidence(f"mean on {worker}", each.steps, each.values) for worker, each in evidence),
        )


def _is_whole(tensor: TensorInfo) -> bool:
    """Return False for a sharded tensor, of which each rank has another part."""
    return not tensor.whole_shape or tensor.whole_shape == tensor.shape


def _differ(reading: Reading, first: Reading, places: Places) -> Flags:
    both = (places >= 0) & reading.is_seen & _select(first.is_seen.astype(np.float64), places).astype(bool)
    ours, theirs = reading.measure(BYTES), _select(first.measure(BYTES), places)
    has_other_bytes = (ours != theirs) & ~np.isnan(ours) & ~np.isnan(theirs)
    rows, others_rows = _exact(reading.rows), _exact(first.rows)[np.maximum(places, 0)]
    has_other_numbers = ((rows != others_rows) & ~(np.isnan(rows) & np.isnan(others_rows))).any(axis=1)
    return np.asarray(both & (has_other_bytes | has_other_numbers))


def _exact(rows: Statistics) -> Statistics:
    return np.asarray(rows[:, EXACT])


def _select(numbers: Numbers, places: Places) -> Numbers:
    if not len(numbers):
        return np.full(len(places), np.nan)
    return numbers[np.maximum(places, 0)]
