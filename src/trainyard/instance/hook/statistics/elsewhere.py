"""Reduces the tensors of devices that are neither processors nor CUDA GPUs, with plain torch operations."""

from collections.abc import Sequence

import numpy as np
import torch

from trainyard.instance.hook.statistics.plain import count_bins, reduce_each
from trainyard.instance.hook.statistics.room import Group, Numbers


class DeviceRoom:
    """Keeps the numbers of a step on the device until they are asked for; then they are fetched, and waited for."""

    def __init__(self, *, tensors: int, measures: int) -> None:
        self._tensors = tensors
        self._measures = measures
        self.is_used = False
        self._step = DevicePending(tensors, measures)

    def take(self, group: Group, *, has_histograms: bool) -> None:
        self.is_used = True
        self._step.statistics.append((group.places, reduce_each(list(group.stored))))
        if has_histograms:
            self._step.histograms.extend(
                (place, count_bins(tensor)) for place, tensor in zip(group.places, group.stored, strict=True)
            )

    def keep(self, measures: Sequence[int], values: torch.Tensor) -> None:
        self.is_used = True
        self._step.kept.append((tuple(measures), values))

    def finish(self) -> "DevicePending":
        finished, self._step = self._step, DevicePending(self._tensors, self._measures)
        self.is_used = False
        return finished


class DevicePending:
    """Numbers on a device that has no events to ask whether they are there."""

    def __init__(self, tensors: int, measures: int) -> None:
        self._tensors = tensors
        self._measures = measures
        self.statistics: list[tuple[tuple[int, ...], torch.Tensor]] = []
        self.kept: list[tuple[tuple[int, ...], torch.Tensor]] = []
        self.histograms: list[tuple[int, torch.Tensor]] = []

    def is_ready(self) -> bool:
        return True

    def result(self) -> Numbers:
        statistics = np.zeros((self._tensors, 8))
        measures = np.full(self._measures, np.nan)
        for places, rows in self.statistics:
            statistics[list(places)] = rows.cpu().double().numpy()
        for numbers, values in self.kept:
            measures[list(numbers)] = values.cpu().double().numpy()
        return Numbers(
            places=[place for places, _ in self.statistics for place in places],
            statistics=statistics,
            measures=measures,
            histograms={place: counts.cpu().numpy().astype(np.uint32) for place, counts in self.histograms},
        )
