"""Reduces the tensors of a step, each on its own device."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import ABSENT, Statistic, TensorTable
from trainyard.formats.tensors.statistics.histograms import ZERO
from trainyard.instance.hook.statistics.contract import (
    DevicePending,
    DeviceReducer,
    DeviceStatistics,
    Pending,
    Reducer,
    StepStatistics,
    TensorGroup,
)
from trainyard.instance.hook.statistics.cpu import CpuReducer
from trainyard.instance.hook.statistics.cuda import CudaReducer
from trainyard.instance.hook.statistics.elements import PLAIN_DTYPES, PLAIN_TYPES, add_zeros, elements, is_dense
from trainyard.instance.hook.statistics.other_devices import GenericDeviceReducer
from trainyard.instance.hook.statistics.probes import ProbeRunner

# From this many tensors on, equal addresses mean equal tensors: new ones cannot all land where the old ones were.
MIN_TENSORS_FOR_ADDRESS_MATCH = 16
MAX_CACHED_GROUPINGS = 4096
# The statistics of a tensor without elements.
EMPTY_ROW = (np.nan, np.nan, np.nan, np.nan, np.nan, 0.0, 0.0, 0.0)


def make_reducer() -> Reducer:
    """Return a reducer for tensors on any device: CPUs, GPUs and others, also mixed in one table."""
    return StepReducer()


class StepReducer:
    """Passes each tensor to the reducer of its device, and merges the results."""

    def __init__(self) -> None:
        self.prepare(TensorTable(()))

    def prepare(self, table: TensorTable) -> None:
        self._table = table
        self._probes = ProbeRunner(table.measures)
        self._reducers: dict[torch.device, DeviceReducer] = {}
        self._groupings: dict[int, CachedGrouping] = {}
        self._unreduced = UnreducedTensors()

    def reduce(
        self, places: Sequence[int], tensors: Sequence[torch.Tensor | None], *, has_histograms: bool = False
    ) -> None:
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return
        with torch.no_grad():
            cached = self._groupings.get(id(places))
            groups = cached.groups(places, tensors) if cached is not None else None
            for group in groups or self._group(places, tensors):
                reducer = self._reducer_of(group.stored[0].device)
                reducer.reduce(group, has_histograms=has_histograms)
                for probed in self._probes.measure(group.places, group.tensors):
                    reducer.store_measures(probed.measures, probed.values)

    def finish(self) -> Pending | None:
        unreduced, self._unreduced = self._unreduced, UnreducedTensors()
        finished = [reducer.finish() for reducer in self._reducers.values() if reducer.is_used]
        pendings = [pending for pending in finished if pending is not None]
        if len(pendings) < len(finished):
            return None
        return StepPending(self._table, pendings, unreduced)

    def _group(self, places: Sequence[int], tensors: Sequence[torch.Tensor | None]) -> list[TensorGroup]:
        builder = GroupBuilder()
        for place, tensor in zip(places, tensors, strict=True):
            if tensor is None or tensor.is_meta:
                builder.is_plain = False
                continue
            stored = probed = tensor
            if (
                type(tensor) not in PLAIN_TYPES
                or tensor.layout is not torch.strided
                or tensor.dtype not in PLAIN_DTYPES
            ):
                builder.is_plain = False
                stored_elements = self._elements_of(place, tensor)
                if stored_elements is None:
                    continue
                stored = stored_elements
                probed = tensor if tensor.layout is not torch.strided else stored
            if not stored.numel():
                builder.is_plain = False
                self._unreduced.empty.add(place)
                continue
            builder.add(place, stored, probed)
        if builder.is_plain:
            if len(self._groupings) >= MAX_CACHED_GROUPINGS:
                self._groupings.clear()
            self._groupings[id(places)] = CachedGrouping(places, [tensor for tensor in tensors if tensor is not None])
        return builder.groups()

    def _elements_of(self, place: int, tensor: torch.Tensor) -> torch.Tensor | None:
        dense = elements(tensor)
        if dense is None:
            return None
        if dense.hidden_zeros:
            self._unreduced.sparse[place] = (dense.stored.numel(), dense.hidden_zeros)
        return dense.stored

    def _reducer_of(self, device: torch.device) -> DeviceReducer:
        reducer = self._reducers.get(device)
        if reducer is None:
            reducer = self._reducers[device] = self._make_reducer(device)
        return reducer

    def _make_reducer(self, device: torch.device) -> DeviceReducer:
        tensors, measures = len(self._table.tensors), len(self._table.measures)
        if device.type == "cpu":
            return CpuReducer(tensors=tensors, measures=measures)
        if device.type == "cuda":
            return CudaReducer(device, tensors=tensors, measures=measures)
        return GenericDeviceReducer(tensors=tensors, measures=measures)


class GroupBuilder:
    """Sorts tensors into groups by device and dtype."""

    def __init__(self) -> None:
        # Whether every tensor so far is reduced as it is.
        self.is_plain = True
        self._groups: dict[tuple[torch.device, torch.dtype], tuple[list[int], list[torch.Tensor], list[torch.Tensor]]]
        self._groups = {}

    def add(self, place: int, stored: torch.Tensor, probed: torch.Tensor) -> None:
        """Add a tensor to its group, as a copy if it is not dense."""
        if not is_dense(stored):
            self.is_plain = False
            stored = stored.contiguous()
        places, all_stored, tensors = self._groups.setdefault((stored.device, stored.dtype), ([], [], []))
        places.append(place)
        all_stored.append(stored)
        tensors.append(probed)

    def groups(self) -> list[TensorGroup]:
        return [
            TensorGroup(
                tuple(places),
                stored,
                tensors,
                sizes=[tensor.numel() for tensor in stored],
                addresses=[tensor.data_ptr() for tensor in stored],
            )
            for places, stored, tensors in self._groups.values()
        ]


class CachedGrouping:
    """How the tensors of a call were grouped, so that those of the next step need only a quick check.

    Inspecting 300 tensors takes most of a millisecond. If there are many, and all have the size and address of the last
    step, they are the same weights and gradients, and only that is checked.
    """

    def __init__(self, places: Sequence[int], tensors: Sequence[torch.Tensor]) -> None:
        self._places = places
        self._sizes = [tensor.numel() for tensor in tensors]
        self._kinds = [(tensor.dtype, tensor.get_device(), _stride(tensor)) for tensor in tensors]
        self._addresses: list[int] = []
        rows: dict[tuple[torch.dtype, int], list[int]] = {}
        for row, (dtype, device, _) in enumerate(self._kinds):
            rows.setdefault((dtype, device), []).append(row)
        self._rows = list(rows.values())
        self._group_places = [tuple(places[row] for row in group) for group in self._rows]

    def groups(self, places: Sequence[int], tensors: Sequence[torch.Tensor | None]) -> list[TensorGroup] | None:
        """Return the tensors in the same groups as before, or None if one of them is of another kind."""
        if places is not self._places:
            return None
        present = [tensor for tensor in tensors if tensor is not None]
        try:
            if [tensor.numel() for tensor in present] != self._sizes:
                return None
            addresses = [tensor.data_ptr() for tensor in present]
        # A sparse tensor has no address.
        except RuntimeError:
            return None
        is_same = addresses == self._addresses
        if not (is_same and len(present) >= MIN_TENSORS_FOR_ADDRESS_MATCH) and not self._has_kinds(present):
            return None
        self._addresses = addresses
        if len(self._rows) == 1:
            return [TensorGroup(self._group_places[0], present, present, self._sizes, addresses)]
        return [self._group(number, present) for number in range(len(self._rows))]

    def _group(self, number: int, tensors: Sequence[torch.Tensor]) -> TensorGroup:
        rows = self._rows[number]
        part = [tensors[row] for row in rows]
        sizes, addresses = [self._sizes[row] for row in rows], [self._addresses[row] for row in rows]
        return TensorGroup(self._group_places[number], part, part, sizes, addresses)

    def _has_kinds(self, tensors: Sequence[torch.Tensor]) -> bool:
        return all(
            type(tensor) in PLAIN_TYPES
            and tensor.layout is torch.strided
            and tensor.dtype is dtype
            and tensor.get_device() == device
            and (tensor.is_contiguous() if stride is None else tensor.stride() == stride)
            for tensor, (dtype, device, stride) in zip(tensors, self._kinds, strict=True)
        )


def _stride(tensor: torch.Tensor) -> tuple[int, ...] | None:
    return None if tensor.is_contiguous() else tensor.stride()


@dataclass(slots=True)
class UnreducedTensors:
    """The parts of a step that need no device: empty tensors, and the zeros that sparse tensors do not store."""

    empty: set[int] = field(default_factory=set)
    # By place: elements stored, and zeros beyond them.
    sparse: dict[int, tuple[int, int]] = field(default_factory=dict)


class StepPending:
    """The numbers of a step from all devices."""

    def __init__(self, table: TensorTable, pendings: Sequence[DevicePending], unreduced: UnreducedTensors) -> None:
        self._table = table
        self._pendings = pendings
        self._unreduced = unreduced

    def is_ready(self) -> bool:
        return all(pending.is_ready() for pending in self._pendings)

    def result(self) -> StepStatistics:
        parts = [pending.result() for pending in self._pendings]
        statistics = np.full((len(self._table.tensors), len(Statistic)), np.nan)
        statistics[:, Statistic.NANS] = ABSENT
        measures = np.full(len(self._table.measures), np.nan)
        for part in parts:
            statistics[part.places] = part.statistics[part.places]
            np.copyto(measures, part.measures, where=~np.isnan(part.measures))
        self._complete(statistics)
        histograms = self._histograms(parts)
        # Values of a float64 tensor beyond the range of float32 become infinite.
        with np.errstate(over="ignore"):
            narrow = statistics.astype(np.float32)
        return StepStatistics(
            statistics=narrow,
            measures=measures.astype(np.float32),
            scalars=statistics[self._table.scalars, Statistic.MEAN],
            histogram_places=tuple(histograms),
            histograms=np.stack(list(histograms.values())) if histograms else None,
        )

    def _complete(self, statistics: NDArray[np.float64]) -> None:
        for place in self._unreduced.empty:
            statistics[place] = EMPTY_ROW
        for place, (stored, zeros) in self._unreduced.sparse.items():
            add_zeros(statistics[place], stored, zeros=zeros)

    def _histograms(self, parts: Sequence[DeviceStatistics]) -> dict[int, NDArray[np.uint32]]:
        histograms = {place: counts for part in parts for place, counts in part.histograms.items()}
        for place, (_, zeros) in self._unreduced.sparse.items():
            if place in histograms:
                histograms[place][ZERO] += zeros
        return histograms
