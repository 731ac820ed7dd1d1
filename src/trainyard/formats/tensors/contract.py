"""What is known of the tensors of a training at a step, and who is told.

Each worker (rank) of a training has a table of its tensors and, for every step, one row of eight statistics for each.
Statistics of parts can be joined: `Column` says how. A table never changes; when the set of tensors does, another table
begins. What a rule wants beyond the eight is a measure: a probe of one tensor, one number a step.
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

ABSENT = -1.0  # in the column NANS: the tensor was not looked at in this step, and its other columns mean nothing


class Mode(StrEnum):
    """What the program does with its model. GLOBAL is all of it, in the order of time."""

    TRAIN = "TRAIN"
    EVAL = "EVAL"
    PREDICT = "PREDICT"
    GLOBAL = "GLOBAL"


class Column(IntEnum):
    """The statistics of a tensor, as 32-bit floats.

    All are of the elements as they are, so that a tensor with a NaN has a NaN as its mean; the counts are exact up to
    2**24. The standard deviation is that of all elements (divided by n): with the mean and n it can be joined with
    that of another part, and unlike a variance it does not vanish for gradients of 1e-25.
    """

    MEAN = 0
    STD = 1
    MEAN_ABS = 2
    MIN = 3
    MAX = 4
    ZEROS = 5  # how many elements are 0
    NANS = 6
    INFS = 7


class Kind(StrEnum):
    """What a tensor is in the training."""

    WEIGHT = "weight"
    BIAS = "bias"
    GRADIENT = "gradient"
    OPTIMIZER = "optimizer"  # a tensor of the optimizer's state
    INPUT = "input"
    OUTPUT = "output"
    LOSS = "loss"
    SCALAR = "scalar"  # told by the program
    CUSTOM = "custom"  # a tensor that the program gives


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a table. `shape` and `size` are those of the part that this worker holds."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    dtype: str  # float32, bfloat16 …
    collections: tuple[str, ...] = ()
    module: str = ""  # by its path in the model; empty is the model itself, or none
    whole_shape: tuple[int, ...] = ()  # of a tensor of which this worker holds a part; empty where it holds all

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Probe:
    """A number that is taken of a tensor besides its statistics. `probes.py` says what each word means."""

    word: str
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Measure:
    """A probe of one tensor of a table, by its place there."""

    tensor: int
    probe: Probe


@dataclass(frozen=True)
class TensorTable:
    """The tensors of a worker in the order in which a step makes them: inputs and outputs forward, then gradients."""

    tensors: tuple[TensorInfo, ...]
    measures: tuple[Measure, ...] = ()

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each tensor is, by its name."""
        return {tensor.name: place for place, tensor in enumerate(self.tensors)}

    @cached_property
    def scalars(self) -> tuple[int, ...]:
        """The places of the tensors with one element, whose exact values a step tells in this order."""
        return tuple(place for place, tensor in enumerate(self.tensors) if tensor.size == 1)


@dataclass(frozen=True, slots=True)
class Step:
    """What one worker knows of one step.

    `number` counts the steps of all modes from 0, `mode_step` those of its mode. `statistics` has a row for each tensor
    of the table, `measures` and `scalars` a value for each of theirs. `lacks` is how many tensors were left out to keep
    within the budget; such a tensor is ABSENT. `saved` tells for each tensor whether it was asked to be saved in this
    step: raw, as reductions, or as a scalar that the program gives. A trial's `steps()` are those in which one was.
    Empty is none.
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
    values: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)  # raw tensors, where they are at hand


class StepSubscriber(Protocol):
    """Is told every step of a training, in order, by one thread.

    `take` is called on the thread that writes, never on the one that trains; it returns in well under a millisecond.
    What it raises ends its subscription and is noted; the training and the others go on.
    """

    def take(self, step: Step) -> None: ...

    def end(self) -> None:
        """No step comes any more: the training has ended."""


@runtime_checkable
class UrgentSubscriber(Protocol):
    """A subscriber that may find something in a step after which the program does not live long."""

    def takes_leave(self) -> bool:
        """Whether what it was told last should be written at once; asked after each step."""


@runtime_checkable
class HistogramSubscriber(StepSubscriber, Protocol):
    """Is also told the histograms that are taken in a step, after the step itself."""

    def take_histograms(self, step: Step, places: Sequence[int], counts: NDArray[np.uint32]) -> None:
        """A row of `counts` for each of `places` in the step's table; `histograms.py` says what it means."""


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A named set of tensors, as it was asked for."""

    name: str
    include_regex: tuple[str, ...] = ()
    tensor_names: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)  # save_interval, reductions …, in AWS's words


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What a worker's manifest tells: how far it has come, and whether more comes."""

    worker: str
    workers: int  # how many write in all
    last_step: int  # -1 before the first
    at_us: int
    dropped: int = 0  # steps that could not be kept, because writing fell behind or failed
    has_ended: bool = False
    collections: tuple[CollectionInfo, ...] = ()
    segment: str = ""  # the newest file of steps, by its name
    mode_steps: Mapping[str, int] = field(default_factory=dict)  # how many steps of each mode there were
