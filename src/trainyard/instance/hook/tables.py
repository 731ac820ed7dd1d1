"""The table of a worker's tensors while it is still growing: tensors get a place when they are first seen."""

from collections.abc import Iterable
from dataclasses import replace

from trainyard.formats.tensors.contract import Kind, Measure, TensorInfo, TensorTable
from trainyard.instance.hook.collecting import Selection

_LASTING = frozenset({Kind.WEIGHT, Kind.BIAS, Kind.GRADIENT, Kind.OPTIMIZER})  # have the same shape at every step


class GrowingTable:
    """Places are kept for good; the table itself is made anew when one was added."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._places: dict[str, int] = {}
        self._tensors: list[TensorInfo] = []
        self._measures: list[Measure] = []
        self._table = TensorTable(())

    @property
    def current(self) -> TensorTable:
        """The same object until a tensor is added or changed."""
        return self._table

    def place(self, name: str) -> int | None:
        return self._places.get(name)

    def add(self, tensors: Iterable[TensorInfo]) -> tuple[int, ...]:
        """The places of tensors by their names; those without one get the next, with the measures wanted of them."""
        before = list(self._tensors)
        places = tuple(self._add(tensor) for tensor in tensors)
        if before != self._tensors:
            self._renew()
        return places

    def reshape(self, place: int, shape: tuple[int, ...]) -> None:
        self._tensors[place] = replace(self._tensors[place], shape=shape)
        self._renew()

    def part(self, places: Iterable[int]) -> TensorTable:
        """A table of some of the tensors, in this order."""
        chosen = list(places)
        order = {place: index for index, place in enumerate(chosen)}
        measures = [replace(each, tensor=order[each.tensor]) for each in self._measures if each.tensor in order]
        return TensorTable(tuple(self._tensors[place] for place in chosen), tuple(measures))

    def _add(self, tensor: TensorInfo) -> int:
        place = self._places.get(tensor.name)
        if place is not None:
            if tensor.kind in _LASTING and self._tensors[place].shape != tensor.shape:
                self._tensors[place] = replace(self._tensors[place], shape=tensor.shape, dtype=tensor.dtype)
            return place
        choice = self._selection.choice(tensor.name)
        place = self._places[tensor.name] = len(self._tensors)
        self._tensors.append(replace(tensor, collections=choice.collections))
        self._measures += [Measure(place, probe) for probe in choice.probes]
        return place

    def _renew(self) -> None:
        self._table = TensorTable(tuple(self._tensors), tuple(self._measures))
