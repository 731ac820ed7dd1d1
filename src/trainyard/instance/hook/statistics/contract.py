"""The interface of reducers, which turn the tensors of a step into statistics.

A reducer is prepared for a table once. In each step it receives tensors as they are computed, with their places in the
table, and starts to reduce them at once, so that none has to be kept. Then the step ends and its numbers arrive:

    reducer.prepare(table)
    reducer.reduce([place], [output])  # in a forward hook
    reducer.reduce(gradient_places, gradients)  # before the optimizer's step
    pending = reducer.finish()
    ...
    if pending is not None and pending.is_ready():  # on the writer thread
        numbers = pending.result()

`step_reducer.make_reducer()` returns one for tensors on any device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Scalars, Statistics, TensorTable, Values

Counts = NDArray[np.uint32]  # rows x formats.tensors.histograms.BINS


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """The numbers of a step, in the form of `formats.tensors.contract.Step`. Tensors that were not reduced are ABSENT.

    A measure is NaN if its tensor was not reduced or an earlier step is missing; a scalar is NaN if it was not reduced.
    """

    statistics: Statistics
    measures: Values
    scalars: Scalars
    histogram_places: tuple[int, ...] = ()
    # A row for each of `histogram_places`.
    histograms: Counts | None = None


class Pending(Protocol):
    """The numbers of a step that a device may still be computing. Used by one thread, not the training thread."""

    def is_ready(self) -> bool:
        """Whether `result` returns without blocking. Never blocks itself."""

    def result(self) -> StepStatistics:
        """Wait for the numbers, release their memory and return them. Called at most once.

        Raises RuntimeError if the device failed. A pending that is dropped instead releases its memory too.
        """


class Reducer(Protocol):
    """Reduces tensors on their own device. Waits for no device, keeps no tensor, records nothing for autograd.

    One thread at a time calls `prepare`, `reduce` and `finish`; it may be a different one each time. Tensors may have
    any dtype and layout. Of a DTensor, the local part counts; of a sparse tensor, all elements including the zeros. A
    complex, quantized or meta tensor is ABSENT (`elements.obstacle` says why), as is any tensor while a CUDA graph is
    being captured.
    """

    def prepare(self, table: TensorTable) -> None:
        """Allocate memory for the tensors and measures of a table, and drop the previous table.

        Pending steps stay valid. An unfinished step is dropped.
        """

    def reduce(
        self, places: Sequence[int], tensors: Sequence[torch.Tensor | None], *, has_histograms: bool = False
    ) -> None:
        """Start to reduce tensors, as they are now, at these places of the table; None is skipped.

        The tensors may be changed or freed as soon as this returns. If a place is reduced twice in a step, the later
        numbers win. Many tensors in one call are much cheaper than many calls. Pass the same `places` object in every
        step (a tuple that you keep): its grouping is cached.
        """

    def finish(self) -> Pending | None:
        """End the step. Returns None if it is dropped because too many earlier ones are still pending."""


@dataclass(frozen=True, slots=True)
class DeviceStatistics:
    """The numbers of one device in a step. Only the rows at `places`, and measures that are not NaN, are valid."""

    places: Sequence[int]
    # A row for every tensor of the table.
    statistics: NDArray[np.float64]
    # One for every measure of the table, NaN if it was not measured.
    measures: NDArray[np.float64]
    # By place.
    histograms: dict[int, NDArray[np.uint32]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """Tensors of one device and dtype: `stored` are the elements to reduce, `tensors` what the probes measure."""

    places: tuple[int, ...]
    stored: Sequence[torch.Tensor]
    tensors: Sequence[torch.Tensor]
    sizes: list[int]
    addresses: list[int]


class DevicePending(Protocol):
    """Like `Pending`, for one device."""

    def is_ready(self) -> bool: ...

    def result(self) -> DeviceStatistics: ...


class DeviceReducer(Protocol):
    """Reduces tensors of one device, step by step. They are dense (`elements.is_dense`), real and not empty."""

    # Whether this step has any numbers yet.
    is_used: bool

    def reduce(self, group: TensorGroup, *, has_histograms: bool) -> None:
        """Start to reduce tensors."""

    def store_measures(self, measures: Sequence[int], values: torch.Tensor) -> None:
        """Store values of measures, which are on this device, for this step."""

    def finish(self) -> DevicePending | None:
        """End the step. Returns None if it is dropped."""
