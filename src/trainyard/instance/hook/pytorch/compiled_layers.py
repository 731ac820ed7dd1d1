"""Layers inside a compiled model, whose statistics are computed in its graph.

A hook that torch.compile traces becomes a few operations that write the statistics to a slot. They cause no graph
break, do not wait for the device and keep no tensor. But they run at every step whatever the budget, cover only the
last call of a layer in a step, and cannot save values.
"""

from collections.abc import Sequence

import numpy as np
import torch

from trainyard.formats.tensors.contract import Statistic, TensorInfo, TensorTable
from trainyard.formats.tensors.statistics.histograms import Counts
from trainyard.instance.hook.pytorch import values
from trainyard.instance.hook.pytorch.layers import Layer
from trainyard.instance.hook.recording import HookRecording
from trainyard.instance.hook.steps import OpenStep, PendingPart

# The position of the element count in a slot.
_SIZE = len(Statistic)
# A layer that was neither called nor compiled in this many reads is dropped.
_MAX_EMPTY_READS = 8


class CompiledSlots:
    """The slots of all layers that may be compiled, and what was written to them since the last read."""

    def __init__(self, recording: HookRecording) -> None:
        self._recording = recording
        self._layers: list[Layer] = []
        self._reads = 0

    def add(self, layers: Sequence[Layer]) -> None:
        self._layers += layers
        self._reads = 0

    def read_into(self, step: OpenStep) -> None:
        """Add the slots to the step, for layers whose hooks were not called outside a graph."""
        uncalled = [layer for layer in self._layers if layer.key not in step.calls]
        if not uncalled:
            return
        slots = [layer.slot for layer in uncalled]
        rows = torch.stack(slots)
        torch._foreach_copy_(slots, [layer.empty for layer in uncalled])
        sizes = self._sizes(uncalled, rows)
        written = [layer for layer in uncalled if sizes.get(layer.key)]
        if not written:
            return
        table, places = self._table(written, sizes)
        selected = [uncalled.index(layer) for layer in written]
        step.parts.append(PendingPart(table, _SlotRows(rows, selected, table), places))
        self._mark(step, written, places)

    def _sizes(self, layers: Sequence[Layer], rows: torch.Tensor) -> dict[str, int]:
        """Return the element count of each layer. Waits for the device once per layer, when it is first compiled."""
        if not all(layer.size for layer in layers):
            for layer, row in zip(layers, rows.tolist(), strict=True):
                layer.size = layer.size or max(int(row[_SIZE]), 0)
            self._reads += 1
            if self._reads >= _MAX_EMPTY_READS:
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
            request = self._recording.save_request(layer.tensor(0).settings, step)
            if request is not None and not request.is_raw:
                step.saved.add(place)
            elif request is not None:
                self._recording.note(
                    "Values of layers in a compiled model cannot be saved; their statistics are recorded."
                )


class _SlotRows:
    """Rows on a device: pending numbers of a step that become its numbers."""

    histogram_places: tuple[int, ...] = ()
    histograms: Counts | None = None

    def __init__(self, rows: torch.Tensor, selected: list[int], table: TensorTable) -> None:
        self._rows, self._selected, self._table = rows, selected, table
        self._wait = values.completion_of(rows)
        self.statistics = np.empty((0, len(Statistic)), np.float32)
        self.measures = np.empty(0, np.float32)
        self.scalars = np.empty(0, np.float64)

    def is_ready(self) -> bool:
        # Copying a few rows takes no longer than polling for them.
        return True

    def result(self) -> "_SlotRows":
        self._wait()
        self.statistics = self._rows.cpu().numpy()[self._selected, : len(Statistic)].astype(np.float32)
        self.scalars = self.statistics[self._table.scalars, Statistic.MEAN].astype(np.float64)
        return self
