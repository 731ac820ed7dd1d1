"""Reduces tensors on devices other than CPUs and CUDA GPUs, with plain torch operations."""

from collections.abc import Sequence

import numpy as np
import torch

from trainyard.instance.hook.statistics.contract import DeviceStatistics, TensorGroup
from trainyard.instance.hook.statistics.torch_operations import count_bins, reduce_each


class GenericDeviceReducer:
    """Keeps the numbers of a step on the device until `result` fetches them, which blocks."""

    def __init__(self, *, tensors: int, measures: int) -> None:
        self._tensors = tensors
        self._measures = measures
        self.is_used = False
        self._step = GenericPending(tensors, measures)

    def reduce(self, group: TensorGroup, *, has_histograms: bool) -> None:
        self.is_used = True
        self._step.statistics.append((group.places, reduce_each(list(group.stored))))
        if has_histograms:
            self._step.histograms.extend(
                (place, count_bins(tensor)) for place, tensor in zip(group.places, group.stored, strict=True)
            )

    def store_measures(self, measures: Sequence[int], values: torch.Tensor) -> None:
        self.is_used = True
        self._step.measured.append((tuple(measures), values))

    def finish(self) -> "GenericPending":
        finished, self._step = self._step, GenericPending(self._tensors, self._measures)
        self.is_used = False
        return finished


class GenericPending:
    """Numbers on a device without events that would tell when they are ready."""

    def __init__(self, tensors: int, measures: int) -> None:
        self._tensors = tensors
        self._measures = measures
        self.statistics: list[tuple[tuple[int, ...], torch.Tensor]] = []
        self.measured: list[tuple[tuple[int, ...], torch.Tensor]] = []
        self.histograms: list[tuple[int, torch.Tensor]] = []

    def is_ready(self) -> bool:
        return True

    def result(self) -> DeviceStatistics:
        statistics = np.zeros((self._tensors, 8))
        measures = np.full(self._measures, np.nan)
        for places, rows in self.statistics:
            statistics[list(places)] = rows.cpu().double().numpy()
        for numbers, values in self.measured:
            measures[list(numbers)] = values.cpu().double().numpy()
        return DeviceStatistics(
            places=[place for places, _ in self.statistics for place in places],
            statistics=statistics,
            measures=measures,
            histograms={place: counts.cpu().numpy().astype(np.uint32) for place, counts in self.histograms},
        )
