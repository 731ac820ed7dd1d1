"""Layers inside of a compiled model: their statistics are part of its graph.

A hook that is traced by torch.compile becomes a few operations that leave the statistics in a tensor of ours. Nothing
of it breaks the graph, asks the device or keeps a tensor; but it is there at every step, whatever the budget, knows
only the last call of a layer in a step, and cannot save values.
"""

from collections.abc import Sequence

import numpy as np
import torch

from trainyard.formats.tensors.contract import Column, TensorInfo, TensorTable
from trainyard.formats.tensors.histograms import Counts
from trainyard.instance.hook.pytorch import values
from trainyard.instance.hook.pytorch.layers import Layer
from trainyard.instance.hook.recording import Recording
from trainyard.instance.hook.steps import OpenStep, Part

_SIZE = len(Column)  # where a slot tells how many elements there were
_LOOKS = 8  # after which a layer that was never seen, nor compiled, is one that nobody calls


class Slots:
    """The slots of all layers that may be compiled, and what was left in them since they were read."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._layers: list[Layer] = []
        self._looks = 0

    def add(self, layers: Sequence[Layer]) -> None:
        self._layers += layers
        self._looks = 0

    def read(self, step: OpenStep) -> None:
        """Add what layers left to the step: of those that were not called where one could see it."""
        unseen = [layer for layer in self._layers if layer.key not in step.calls]
        if not unseen:
            return
        slots = [layer.slot for layer in unseen]
        rows = torch.stack(slots)
        torch._foreach_copy_(slots, [layer.empty for layer in unseen])
        sizes = self._sizes(unseen, rows)
        written = [layer for layer in unseen if sizes.get(layer.key)]
        if not written:
            return
        table, places = self._table(written, sizes)
        chosen = [unseen.index(layer) for layer in written]
        step.parts.append(Part(table, _Rows(rows, chosen, table), places))
        self._mark(step, written, places)

    def _sizes(self, layers: Sequence[Layer], rows: torch.Tensor) -> dict[str, int]:
        """How many elements each layer had; asked of the device once for each layer, when it is first compiled."""
        if not all(layer.size for layer in layers):
            for layer, row in zip(layers, rows.tolist(), strict=True):
                layer.size = layer.size or max(int(row[_SIZE]), 0)
            self._looks += 1
            if self._looks >= _LOOKS:
                self._layers = [layer for layer in self._layers if layer.size or layer not in layers]
        return {layer.key: layer.size for layer in layers}

    def _table(self, layers: Sequence[Layer], sizes: dict[str, int]) -> tuple[TensorTable, tuple[int, ...]]:
        infos = [
            TensorInfo(layer.tensor(0).name, layer.side.kind, (sizes[layer.key],), "float32", module=layer.module)
            for layer in layers
        ]
        places = self._recording.table.add(infos)
        return TensorTable(tuple(infos)), places

    def _mark(self, step: OpenStep, layers: Sequence[Layer], places: Sequence[int]) -> None:
        for layer, place in zip(layers, places, strict=True):
            wish = self._recording.saved(layer.tensor(0).choice, step)
            if wish is not None and not wish.is_raw:
                step.saved.add(place)
            elif wish is not None:
                self._recording.note("Of layers in a compiled model there are statistics, but no values can be saved.")


class _Rows:
    """Rows that are on a device; they are numbers and a part of a step at the same time."""

    histogram_places: tuple[int, ...] = ()
    histograms: Counts | None = None

    def __init__(self, rows: torch.Tensor, chosen: list[int], table: TensorTable) -> None:
        self._rows, self._chosen, self._table = rows, chosen, table
        self._wait = values.waiting_for(rows)
        self.statistics = np.empty((0, len(Column)), np.float32)
        self.measures = np.empty(0, np.float32)
        self.scalars = np.empty(0, np.float64)

    def is_ready(self) -> bool:
        return True  # a few rows, which take no longer than to wait for them

    def result(self) -> "_Rows":
        self._wait()
        self.statistics = self._rows.cpu().numpy()[self._chosen, : len(Column)].astype(np.float32)
        self.scalars = self.statistics[self._table.scalars, Column.MEAN].astype(np.float64)
        return self
