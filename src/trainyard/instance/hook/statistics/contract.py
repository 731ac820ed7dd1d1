"""How the tensors of a step become numbers.

A reducer is prepared for a table once. In each step it is given the tensors as they come to be, at their places in the
table, and starts their reduction at once, so that none has to be kept; then the step ends and its numbers arrive:

    reducer.prepare(table)
    reducer.take([place], [output])  # in a forward hook
    reducer.take(gradient_places, gradients)  # before the optimizer's step
    pending = reducer.finish()
    ...
    if pending is not None and pending.is_ready():  # on the thread that writes
        numbers = pending.result()

`reducing.make_reducer()` makes one for whatever devices the tensors are on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Scalars, Statistics, TensorTable, Values

Counts = NDArray[np.uint32]  # rows x formats.tensors.histograms.BINS


@dataclass(frozen=True, slots=True)
class Reduced:
    """The numbers of a step, as `formats.tensors.contract.Step` wants them. Tensors that were not taken are ABSENT.

    A measure is NaN where its tensor was not taken or a step before is lacking; so is a scalar that was not taken.
    """

    statistics: Statistics
    measures: Values
    scalars: Scalars
    histogram_places: tuple[int, ...] = ()
    histograms: Counts | None = None  # a row for each of histogram_places


class Pending(Protocol):
    """The numbers of a step that are still being made. Used by one thread, not the one that trains."""

    def is_ready(self) -> bool:
        """Whether `result` returns without a wait. Never waits itself."""

    def result(self) -> Reduced:
        """The numbers, waited for if need be, and the memory they were in given back. Called once at most.

        Raises RuntimeError where the device failed. A pending that is dropped without it gives its memory back too.
        """


class Reducer(Protocol):
    """Reduces tensors where they are. Waits for no device, keeps no tensor, records nothing for autograd.

    One thread at a time calls `prepare`, `take` and `finish`; it may be a different one each time. Tensors may be of
    any dtype and layout; of a DTensor the local part counts, of a sparse tensor all elements, the zeros included. A
    complex, quantized or meta tensor is ABSENT (`whole.obstacle` says why), as is any tensor while a CUDA graph is
    captured.
    """

    def prepare(self, table: TensorTable) -> None:
        """Makes room for the tensors and measures of a table, and forgets the one before.

        Steps that are pending stay valid. What was taken and not finished is dropped.
        """

    def take(
        self, places: Sequence[int], tensors: Sequence[torch.Tensor | None], *, has_histograms: bool = False
    ) -> None:
        """Starts the reduction of tensors, as they are now, at these places of the table; None is skipped.

        The tensors may be changed or freed as soon as this returns. A place that is taken twice in a step has the later
        numbers. Many tensors in one call are much cheaper than many calls; `places` should be the same object in every
        step (a tuple that is kept), as what was worked out for it is remembered.
        """

    def finish(self) -> Pending | None:
        """Ends the step; None where it is dropped, as too many before it are still pending."""
