"""What was recorded of a training, whatever the files look like: the seam between a trial and its layouts on disk.

`ArrowRecording` reads ours, `SmdebugRecording` that of smdebug. A row is the place of a step in a worker's index.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import CollectionInfo, Mode, Step, TensorInfo
from trainyard.formats.tensors.safetensors import RawTensor
from trainyard.formats.tensors.step_index import Numbers, StepIndex

UNKNOWN_SHAPE: Final = (-1,)  # of a tensor of which only reductions were saved

Reductions = Mapping[tuple[str, bool], float]  # by the name of the reduction, and whether it is of absolute values


@dataclass(frozen=True, slots=True)
class Slab:
    """Rows in which the same tensors stand at the same places: what is known of all of them, where it lies."""

    rows: slice
    tensors: Sequence[TensorInfo]
    statistics: NDArray[np.float32]  # rows x tensors x columns


class WorkerRecording(Protocol):
    """What one worker has recorded. Nothing changes but by `refresh` of the recording it belongs to."""

    name: str
    index: StepIndex

    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors there ever were, in the order of their tables, each as it was last."""
        ...

    def saved_names(self, mode: Mode) -> set[str]:
        """The tensors that were saved in any step of a mode."""
        ...

    def names_at(self, row: int, *, saved: bool) -> list[str]:
        """The tensors that were saved in a row, or those of which anything is known there."""
        ...

    def saved_rows(self, name: str) -> Numbers:
        """The rows in which a tensor was saved."""
        ...

    def info(self, name: str, row: int) -> TensorInfo | None:
        """What a tensor is in a row; None where nothing is known of it there."""
        ...

    def raw(self, name: str, row: int) -> RawTensor | None:
        """The tensor itself; None where it was not saved, or only reductions of it."""
        ...

    def scalar(self, name: str, row: int) -> float | None:
        """The exact value of a tensor with one element; None where it has more or was not looked at."""
        ...

    def reductions(self, name: str, row: int) -> Reductions:
        """What numbers are known of a tensor in a row."""
        ...

    def series(self, name: str, statistic: str) -> "RowValues":
        """A number of a tensor in all rows in which the tensor was looked at; "value" is that of its only element."""
        ...

    def slabs(self, rows: slice) -> Iterator[Slab]:
        """The statistics of all tensors in some rows."""
        ...

    def histograms(self, name: str) -> "RowValues":
        """The histograms of a tensor: rows x bins."""
        ...

    def step(self, row: int) -> Step:
        """A step as it was told, with the raw tensors of it, which are read when they are looked at."""
        ...


@dataclass(frozen=True, slots=True)
class RowValues:
    """Rows, and a number for each."""

    rows: Numbers
    values: NDArray[Any]


class Recording(Protocol):
    """What was recorded of a training by all its workers. Used by one thread at a time."""

    @property
    def workers(self) -> Mapping[str, WorkerRecording]:
        """Those that have told anything, in the order of their names."""
        ...

    @property
    def num_workers(self) -> int:
        """How many workers record in all."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether all that will ever come has been read."""
        ...

    def has_worker_ended(self, worker: str) -> bool: ...

    @property
    def collections(self) -> Mapping[str, CollectionInfo]: ...

    @property
    def is_near(self) -> bool:
        """Whether looking for news costs so little that it can be done before every answer."""
        ...

    def refresh(self, *, is_thorough: bool = False) -> None:
        """Read what has come since; thoroughly also where nothing points to it."""
        ...
