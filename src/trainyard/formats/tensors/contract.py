"""The data of a step: the statistics of all tensors, and the interface of its subscribers.

Each worker (rank) of a training has a table of its tensors and, for every step, one row of eight statistics for each
tensor. Statistics of parts can be joined: `Statistic` says how. A table never changes; if the set of tensors changes, a
new table begins. What a rule needs beyond the eight is a measure: a probe of one tensor, one number per step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Statistics = NDArray[np.float32]  # tensors x columns
Values = NDArray[np.float32]
Scalars = NDArray[np.float64]
Saved = NDArray[np.bool_]

# In the column NANS: the tensor was not captured in this step, and its other columns mean nothing.
ABSENT = -1.0


class Mode(StrEnum):
    """What the program does with its model. GLOBAL covers all modes, in order of time."""

    TRAIN = "TRAIN"
    EVAL = "EVAL"
    PREDICT = "PREDICT"
    GLOBAL = "GLOBAL"


class Statistic(IntEnum):
    """The statistics of a tensor, as 32-bit floats.

    They cover all elements, so the mean of a tensor with a NaN is NaN; the counts are exact up to 2**24. The standard
    deviation is the population's (divided by n): with the mean and n it can be joined with that of another part, and
    unlike a variance it does not underflow for gradients of 1e-25.
    """

    MEAN = 0
    STD = 1
    MEAN_ABS = 2
    MIN = 3
    MAX = 4
    ZEROS = 5  # count
    NANS = 6
    INFS = 7


class Kind(StrEnum):
    """The role of a tensor in the training."""

    WEIGHT = "weight"
    BIAS = "bias"
    GRADIENT = "gradient"
    OPTIMIZER = "optimizer"  # optimizer state
    INPUT = "input"
    OUTPUT = "output"
    LOSS = "loss"
    # Reported by the program.
    SCALAR = "scalar"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a table. `shape` and `size` are those of the part on this worker."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    dtype: str  # float32, bfloat16 …
    collections: tuple[str, ...] = ()
    # The path of the module in the model; empty for the model itself or no module.
    module: str = ""
    # The full shape, if this worker has only a part of the tensor; else empty.
    whole_shape: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Probe:
    """A number that is computed from a tensor besides its statistics; `probes.py` defines the words."""

    word: str
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Measure:
    """A probe of one tensor, which is an index into its table."""

    tensor: int
    probe: Probe


@dataclass(frozen=True)
class TensorTable:
    """The tensors of a worker in the order in which a step computes them: inputs, outputs, then gradients."""

    tensors: tuple[TensorInfo, ...]
    measures: tuple[Measure, ...] = ()

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The index of each tensor, by name."""
        return {tensor.name: place for place, tensor in enumerate(self.tensors)}

    @cached_property
    def scalars(self) -> tuple[int, ...]:
        """The indices of the tensors with one element; `Step.scalars` has their exact values in this order."""
        return tuple(place for place, tensor in enumerate(self.tensors) if tensor.size == 1)


@dataclass(frozen=True, slots=True)
class Step:
    """The data of one step from one worker.

    `number` counts the steps of all modes from 0, `mode_step` those of its mode. `statistics` has a row for each tensor
    of the table, `measures` and `scalars` have a value for each of the table's. `lacks` is the number of tensors that
    were left out to keep within the budget; these are ABSENT. `saved` tells for each tensor whether it is saved in this
    step: raw, as reductions, or as a scalar from the program; empty means none. A trial's `steps()` are the steps with
    a saved tensor.
    """

    number: int
    mode: Mode
    mode_step: int
    at_us: int
    worker: str  # worker_0 …
    table: TensorTable
    statistics: Statistics
    measures: Values
    scalars: Scalars
    lacks: int = 0
    saved: Saved = field(default_factory=lambda: np.empty(0, bool))
    # The raw tensors, if available.
    values: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)


class StepSubscriber(Protocol):
    """Gets every step of a training, in order, from one thread.

    `take` runs on the writer thread, never on the training thread, and must return in well under a millisecond. If it
    raises, its subscription ends with a note; the training and the other subscribers continue.
    """

    def take(self, step: Step) -> None: ...

    def end(self) -> None:
        """Handle the end of the training: no further step comes."""


@runtime_checkable
class UrgentSubscriber(Protocol):
    """A subscriber that may learn from a step that the program is about to end."""

    def needs_flush(self) -> bool:
        """Whether the last step must be written at once; called after each step."""


@runtime_checkable
class HistogramSubscriber(StepSubscriber, Protocol):
    """Also gets the histograms of a step, after the step itself."""

    def take_histograms(self, step: Step, places: Sequence[int], counts: NDArray[np.uint32]) -> None:
        """Handle a row of `counts` for each tensor of `places`, indices into the table; see `histograms.py`."""


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A named set of tensors, as configured."""

    name: str
    include_regex: tuple[str, ...] = ()
    tensor_names: tuple[str, ...] = ()
    # In AWS's words: save_interval, reductions …
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The manifest of a worker: its last step, and whether more steps will come."""

    worker: str
    # The number of workers that write this trial.
    workers: int
    last_step: int  # -1 before the first
    at_us: int
    # Steps that were lost because writing fell behind or failed.
    dropped: int = 0
    has_ended: bool = False
    collections: tuple[CollectionInfo, ...] = ()
    # The name of the newest file of steps.
    segment: str = ""
    # The number of steps of each mode.
    mode_steps: Mapping[str, int] = field(default_factory=dict)
