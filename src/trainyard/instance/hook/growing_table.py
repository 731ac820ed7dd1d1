"""The table of a worker's tensors while it grows: a tensor gets a place when it is first observed."""

from collections.abc import Iterable
from dataclasses import replace

from trainyard.formats.tensors.contract import Kind, Measure, TensorInfo, TensorTable
from trainyard.instance.hook.selection import Selection

# These have the same shape at every step.
_FIXED_SHAPE = frozenset({Kind.WEIGHT, Kind.BIAS, Kind.GRADIENT, Kind.OPTIMIZER})


class GrowingTable:
    """Assigns places, which never change. The table is rebuilt when a tensor is added."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._places: dict[str, int] = {}
        self._tensors: list[TensorInfo] = []
        self._measures: list[Measure] = []
        self._table = TensorTable(())

    @property
    def current(self) -> TensorTable:
        """The current table: the same object until a tensor is added or changed."""
        return self._table

    def place(self, name: str) -> int | None:
        return self._places.get(name)

    def add(self, tensors: Iterable[TensorInfo]) -> tuple[int, ...]:
        """Return the places of tensors by name. New tensors get the next places, and the measures requested of them."""
        before = list(self._tensors)
        places = tuple(self._add(tensor) for tensor in tensors)
        if before != self._tensors:
            self._rebuild()
        return places

    def reshape(self, place: int, shape: tuple[int, ...]) -> None:
        self._tensors[place] = replace(self._tensors[place], shape=shape)
        self._rebuild()

    def subset(self, places: Iterable[int]) -> TensorTable:
        """Return a table of some of the tensors, in this order."""
        selected = list(places)
        order = {place: index for index, place in enumerate(selected)}
        measures = [replace(each, tensor=order[each.tensor]) for each in self._measures if each.tensor in order]
        return TensorTable(tuple(self._tensors[place] for place in selected), tuple(measures))

    def _add(self, tensor: TensorInfo) -> int:
        place = self._places.get(tensor.name)
        if place is not None:
            if tensor.kind in _FIXED_SHAPE and self._tensors[place].shape != tensor.shape:
                self._tensors[place] = replace(self._tensors[place], shape=tensor.shape, dtype=tensor.dtype)
            return place
        settings = self._selection.settings(tensor.name)
        place = self._places[tensor.name] = len(self._tensors)
        self._tensors.append(replace(tensor, collections=settings.collections))
        self._measures += [Measure(place, probe) for probe in settings.probes]
        return place

    def _rebuild(self) -> None:
        self._table = TensorTable(tuple(self._tensors), tuple(self._measures))
