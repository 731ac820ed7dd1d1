"""Reduces the tensors of a step on whatever devices they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import ABSENT, Column, TensorTable
from trainyard.formats.tensors.histograms import ZERO
from trainyard.instance.hook.statistics.contract import Pending, Reduced, Reducer
from trainyard.instance.hook.statistics.cuda import CudaRoom
from trainyard.instance.hook.statistics.elsewhere import DeviceRoom
from trainyard.instance.hook.statistics.probes import Probing
from trainyard.instance.hook.statistics.processor import ProcessorRoom
from trainyard.instance.hook.statistics.room import Group, Numbers, Room, RoomPending
from trainyard.instance.hook.statistics.whole import PLAIN_DTYPES, PLAIN_TYPES, add_zeros, elements, is_dense

MANY = 16  # tensors that cannot all have come to lie, other than they were, where all of the step before lay
FAMILIAR = 4096  # calls whose tensors are remembered, by the list of their places
EMPTY_ROW = (np.nan, np.nan, np.nan, np.nan, np.nan, 0.0, 0.0, 0.0)  # of a tensor without elements


def make_reducer() -> Reducer:
    """A reducer for tensors on any device: processors, GPUs and others, several of them in one table too."""
    return StepReducer()


class StepReducer:
    """Sends each tensor to the room of its device, and puts together what comes back."""

    def __init__(self) -> None:
        self.prepare(TensorTable(()))

    def prepare(self, table: TensorTable) -> None:
        self._table = table
        self._probing = Probing(table.measures)
        self._rooms: dict[torch.device, Room] = {}
        self._familiar: dict[int, Familiar] = {}
        self._apart = Apart()

    def take(
        self, places: Sequence[int], tensors: Sequence[torch.Tensor | None], *, has_histograms: bool = False
    ) -> None:
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return
        with torch.no_grad():
            familiar = self._familiar.get(id(places))
            groups = familiar.groups(places, tensors) if familiar is not None else None
            for group in groups or self._sort(places, tensors):
                room = self._room(group.stored[0].device)
                room.take(group, has_histograms=has_histograms)
                for taken in self._probing.take(group.places, group.tensors):
                    room.keep(taken.measures, taken.values)

    def finish(self) -> Pending | None:
        apart, self._apart = self._apart, Apart()
        finished = [room.finish() for room in self._rooms.values() if room.is_used]
        pendings = [pending for pending in finished if pending is not None]
        if len(pendings) < len(finished):
            return None
        return StepPending(self._table, pendings, apart)

    def _sort(self, places: Sequence[int], tensors: Sequence[torch.Tensor | None]) -> "list[Group]":
        sorting = Sorting()
        for place, tensor in zip(places, tensors, strict=True):
            if tensor is None or tensor.is_meta:
                sorting.is_plain = False
                continue
            stored = looked_at = tensor
            if (
                type(tensor) not in PLAIN_TYPES
                or tensor.layout is not torch.strided
                or tensor.dtype not in PLAIN_DTYPES
            ):
                sorting.is_plain = False
                found = self._look_into(place, tensor)
                if found is None:
                    continue
                stored = found
                looked_at = tensor if tensor.layout is not torch.strided else stored
            if not stored.numel():
                sorting.is_plain = False
                self._apart.empty.add(place)
                continue
            sorting.add(place, stored, looked_at)
        if sorting.is_plain:
            if len(self._familiar) >= FAMILIAR:
                self._familiar.clear()
            self._familiar[id(places)] = Familiar(places, [tensor for tensor in tensors if tensor is not None])
        return sorting.groups()

    def _look_into(self, place: int, tensor: torch.Tensor) -> torch.Tensor | None:
        found = elements(tensor)
        if found is None:
            return None
        if found.hidden_zeros:
            self._apart.sparse[place] = (found.stored.numel(), found.hidden_zeros)
        return found.stored

    def _room(self, device: torch.device) -> Room:
        room = self._rooms.get(device)
        if room is None:
            room = self._rooms[device] = self._open(device)
        return room

    def _open(self, device: torch.device) -> Room:
        tensors, measures = len(self._table.tensors), len(self._table.measures)
        if device.type == "cpu":
            return ProcessorRoom(tensors=tensors, measures=measures)
        if device.type == "cuda":
            return CudaRoom(device, tensors=tensors, measures=measures)
        return DeviceRoom(tensors=tensors, measures=measures)


class Sorting:
    """Tensors that are being put into groups."""

    def __init__(self) -> None:
        self.is_plain = True  # whether every tensor so far is reduced as it is
        self._groups: dict[tuple[torch.device, torch.dtype], tuple[list[int], list[torch.Tensor], list[torch.Tensor]]]
        self._groups = {}

    def add(self, place: int, stored: torch.Tensor, looked_at: torch.Tensor) -> None:
        """Puts a tensor into its group, as a copy where it is not dense."""
        if not is_dense(stored):
            self.is_plain = False
            stored = stored.contiguous()
        places, all_stored, tensors = self._groups.setdefault((stored.device, stored.dtype), ([], [], []))
        places.append(place)
        all_stored.append(stored)
        tensors.append(looked_at)

    def groups(self) -> list[Group]:
        return [
            Group(
                tuple(places),
                stored,
                tensors,
                sizes=[tensor.numel() for tensor in stored],
                addresses=[tensor.data_ptr() for tensor in stored],
            )
            for places, stored, tensors in self._groups.values()
        ]


class Familiar:
    """How the tensors of a call were grouped, so that those of the next step need only a glance.

    Asking 300 tensors everything takes the better part of a millisecond. Where there are many and all have the size and
    the address of the step before, they are the weights and gradients that they were, and that is all that is asked.
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

    def groups(self, places: Sequence[int], tensors: Sequence[torch.Tensor | None]) -> list[Group] | None:
        """The tensors in the groups of before; None where one of them is of another kind."""
        if places is not self._places:
            return None
        present = [tensor for tensor in tensors if tensor is not None]
        try:
            if [tensor.numel() for tensor in present] != self._sizes:
                return None
            addresses = [tensor.data_ptr() for tensor in present]
        except RuntimeError:  # of a sparse tensor, which has none
            return None
        is_same = addresses == self._addresses
        if not (is_same and len(present) >= MANY) and not self._has_kinds(present):
            return None
        self._addresses = addresses
        if len(self._rows) == 1:
            return [Group(self._group_places[0], present, present, self._sizes, addresses)]
        return [self._group(number, present) for number in range(len(self._rows))]

    def _group(self, number: int, tensors: Sequence[torch.Tensor]) -> Group:
        rows = self._rows[number]
        part = [tensors[row] for row in rows]
        sizes, addresses = [self._sizes[row] for row in rows], [self._addresses[row] for row in rows]
        return Group(self._group_places[number], part, part, sizes, addresses)

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
class Apart:
    """What of a step no device needs to be asked about."""

    empty: set[int] = field(default_factory=set)
    sparse: dict[int, tuple[int, int]] = field(default_factory=dict)  # elements stored, and zeros beyond them


class StepPending:
    """The numbers of a step from all rooms."""

    def __init__(self, table: TensorTable, pendings: Sequence[RoomPending], apart: Apart) -> None:
        self._table = table
        self._pendings = pendings
        self._apart = apart

    def is_ready(self) -> bool:
        return all(pending.is_ready() for pending in self._pendings)

    def result(self) -> Reduced:
        parts = [pending.result() for pending in self._pendings]
        statistics = np.full((len(self._table.tensors), len(Column)), np.nan)
        statistics[:, Column.NANS] = ABSENT
        measures = np.full(len(self._table.measures), np.nan)
        for part in parts:
            statistics[part.places] = part.statistics[part.places]
            np.copyto(measures, part.measures, where=~np.isnan(part.measures))
        self._complete(statistics)
        histograms = self._histograms(parts)
        with np.errstate(over="ignore"):  # of a float64 tensor beyond what 32 bits hold: infinite
            narrow = statistics.astype(np.float32)
        return Reduced(
            statistics=narrow,
            measures=measures.astype(np.float32),
            scalars=statistics[self._table.scalars, Column.MEAN],
            histogram_places=tuple(histograms),
            histograms=np.stack(list(histograms.values())) if histograms else None,
        )

    def _complete(self, statistics: NDArray[np.float64]) -> None:
        for place in self._apart.empty:
            statistics[place] = EMPTY_ROW
        for place, (stored, zeros) in self._apart.sparse.items():
            add_zeros(statistics[place], stored, zeros=zeros)

    def _histograms(self, parts: Sequence[Numbers]) -> dict[int, NDArray[np.uint32]]:
        found = {place: counts for part in parts for place, counts in part.histograms.items()}
        for place, (_, zeros) in self._apart.sparse.items():
            if place in found:
                found[place][ZERO] += zeros
        return found
