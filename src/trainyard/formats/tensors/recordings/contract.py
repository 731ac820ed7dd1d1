"""The interface of a recording: what a trial reads, whatever the layout on disk.

`ArrowRecording` reads our layout, `SmdebugRecording` that of smdebug. A row is the position of a step in a worker's
index.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import CollectionInfo, Mode, Step, TensorInfo
from trainyard.formats.tensors.encoding.safetensors import RawTensor
from trainyard.formats.tensors.recordings.step_index import Numbers, StepIndex

# The shape of a tensor of which only reductions were saved.
UNKNOWN_SHAPE: Final = (-1,)

# By the name of the reduction, and whether it is of absolute values.
Reductions = Mapping[tuple[str, bool], float]


@dataclass(frozen=True, slots=True)
class StatisticsBlock:
    """The statistics of consecutive rows with the same tensors."""

    rows: slice
    tensors: Sequence[TensorInfo]
    statistics: NDArray[np.float32]  # rows x tensors x columns


class WorkerRecording(Protocol):
    """The recording of one worker. Only `Recording.refresh` changes it."""

    name: str
    index: StepIndex

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Return all tensors of any step, in the order of their tables, each as last recorded."""
        ...

    def saved_names(self, mode: Mode) -> set[str]:
        """Return the tensors that were saved in any step of a mode."""
        ...

    def names_at(self, row: int, *, saved: bool) -> list[str]:
        """Return the tensors that were saved in a row, or all that were captured there."""
        ...

    def saved_rows(self, name: str) -> Numbers:
        """Return the rows in which a tensor was saved."""
        ...

    def info(self, name: str, row: int) -> TensorInfo | None:
        """Return the description of a tensor in a row; None if the row does not have it."""
        ...

    def raw(self, name: str, row: int) -> RawTensor | None:
        """Return the raw tensor; None if it was not saved, or only its reductions."""
        ...

    def raw_part(self, name: str, row: int, first: int, count: int) -> RawTensor | None:
        """Return some consecutive elements of the raw tensor, or as many as it has; None as for `raw`."""
        ...

    def raw_bytes(self, name: str, row: int) -> int | None:
        """Return the size of the raw tensor, without reading it; None as for `raw`."""
        ...

    def scalar(self, name: str, row: int) -> float | None:
        """Return the exact value of a tensor with one element; None if it has more or was not captured."""
        ...

    def reductions(self, name: str, row: int) -> Reductions:
        """Return all known reductions of a tensor in a row."""
        ...

    def series(self, name: str, statistic: str) -> "RowValues":
        """Return a statistic of a tensor in all rows that captured it; "value" is its only element."""
        ...

    def statistics_blocks(self, rows: slice) -> Iterator[StatisticsBlock]:
        """Iterate over the statistics of all tensors in some rows."""
        ...

    def histograms(self, name: str) -> "RowValues":
        """Return the histograms of a tensor: rows x bins."""
        ...

    def step(self, row: int) -> Step:
        """Return a step as recorded; its raw tensors are read on access."""
        ...


@dataclass(frozen=True, slots=True)
class RowValues:
    """Rows, and a value for each."""

    rows: Numbers
    values: NDArray[Any]


class Recording(Protocol):
    """The recordings of all workers of a training. For one thread at a time."""

    @property
    def workers(self) -> Mapping[str, WorkerRecording]:
        """The workers that have recorded anything, in order of name."""
        ...

    @property
    def num_workers(self) -> int:
        """The number of workers of the training."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the training has ended and everything has been read."""
        ...

    def has_worker_ended(self, worker: str) -> bool: ...

    @property
    def collections(self) -> Mapping[str, CollectionInfo]: ...

    @property
    def is_near(self) -> bool:
        """Whether a refresh is so cheap that every query may do one."""
        ...

    def refresh(self, *, is_thorough: bool = False) -> None:
        """Read what is new; if thorough, also list all files for anything unannounced."""
        ...
