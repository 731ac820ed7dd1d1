"""TensorBoard output of a training: losses and scalars at every step, and histograms if they are captured."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from trainyard.formats.tensorboard import EventFile, Histogram, Scalar
from trainyard.formats.tensors.contract import ABSENT, HistogramSubscriber, Kind, Mode, Statistic, Step, TensorInfo
from trainyard.formats.tensors.statistics.histograms import Counts, buckets

FIRST_WORKER = "worker_0"

# Collections whose single values are shown as scalars.
_SCALAR_COLLECTIONS = frozenset({"losses", "metrics", "sm_metrics"})
_GENERIC_COLLECTIONS = frozenset({"all", "default"})


class TensorBoardSubscriber(HistogramSubscriber):
    """Writes a run for each mode below a folder, and below that for each worker but the first.

    The steps are those of the mode. A run that is continued in the same folder gets another file, as TensorBoard
    expects.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[tuple[Mode, str], EventFile] = {}

    def take(self, step: Step) -> None:
        scalars = list(_scalars(step))
        if scalars:
            self._file(step).write(step.mode_step, scalars, at_us=step.at_us)

    def take_histograms(self, step: Step, places: Sequence[int], counts: Counts) -> None:
        found = [_histogram(step, place, counted) for place, counted in zip(places, counts, strict=True)]
        if found:
            self._file(step).write(step.mode_step, found, at_us=step.at_us)

    def end(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _file(self, step: Step) -> EventFile:
        key = step.mode, step.worker
        if key not in self._files:
            run = self._folder / step.mode
            folder = run if step.worker == FIRST_WORKER else run / step.worker
            self._files[key] = EventFile(folder, writer=step.worker, at_us=step.at_us)
        return self._files[key]


def _scalars(step: Step) -> Iterator[Scalar]:
    tensors = step.table.tensors
    for value, place in zip(step.scalars, step.table.scalars, strict=True):
        if _is_scalar(tensors[place]) and step.statistics[place, Statistic.NANS] != ABSENT:
            yield Scalar(tensors[place].name, float(value))


def _is_scalar(tensor: TensorInfo) -> bool:
    return tensor.kind in (Kind.LOSS, Kind.SCALAR) or not _SCALAR_COLLECTIONS.isdisjoint(tensor.collections)


def _histogram(step: Step, place: int, counts: Counts) -> Histogram:
    tensor, row = step.table.tensors[place], np.asarray(step.statistics[place], np.float64)
    low, high = float(row[Statistic.MIN]), float(row[Statistic.MAX])
    mean, std, size = row[Statistic.MEAN], row[Statistic.STD], tensor.size
    shown = buckets(counts, low, high)
    return Histogram(
        tag=f"{_collection(tensor)}/{tensor.name}",
        low=low,
        high=high,
        count=float(counts.sum()),
        total=float(mean * size),
        squares=float((std * std + mean * mean) * size),
        limits=shown.limits.tolist(),
        counts=shown.counts.tolist(),
    )


def _collection(tensor: TensorInfo) -> str:
    """Return the collection under which a tensor is shown: its first specific one."""
    specific = [name for name in tensor.collections if name not in _GENERIC_COLLECTIONS]
    return (specific or list(tensor.collections) or [tensor.kind.value])[0]
