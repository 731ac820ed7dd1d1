"""Where the tensors of one device are reduced."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Numbers:
    """What came of the tensors of one device in a step. Only the places and measures that were taken mean anything."""

    places: Sequence[int]
    statistics: NDArray[np.float64]  # a row for every tensor of the table
    measures: NDArray[np.float64]  # one for every measure of the table, NaN where it was not taken
    histograms: dict[int, NDArray[np.uint32]] = field(default_factory=dict)  # by place


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors of one device and dtype: what is stored of each, and what its probes look at."""

    places: tuple[int, ...]
    stored: Sequence[torch.Tensor]
    tensors: Sequence[torch.Tensor]
    sizes: list[int]
    addresses: list[int]


class RoomPending(Protocol):
    """As `contract.Pending`, for one device."""

    def is_ready(self) -> bool: ...

    def result(self) -> Numbers: ...


class Room(Protocol):
    """Reduces tensors of one device, a step at a time. They are dense (whole.is_dense), real and not empty."""

    is_used: bool  # whether anything was taken in this step

    def take(self, group: Group, *, has_histograms: bool) -> None:
        """Starts the reduction of tensors."""

    def keep(self, measures: Sequence[int], values: torch.Tensor) -> None:
        """Keeps values of measures, which are on the room's device, for this step."""

    def finish(self) -> RoomPending | None:
        """Ends the step; None where it is dropped."""
