"""A trace as tables of columns: events, launches on devices, memory, collectives, steps.

Names, categories, threads and shapes are stored once; a column has their indexes. All times are nanoseconds. They are
Unix times if `Trace.is_unix_time`, which the traces of torch are; otherwise only their differences mean something.
Rows of a table are in the order of the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Index = NDArray[np.int32]
Small = NDArray[np.int16]
Real = NDArray[np.float32]
Mask = NDArray[np.bool_]

# In a column of whole numbers that an event does not have.
ABSENT = -1


class EventKind(IntEnum):
    """What an event is, whatever a version of torch calls its category."""

    OTHER = 0
    KERNEL = 1
    MEMCPY = 2
    MEMSET = 3
    RUNTIME = 4  # a call of the program to the driver of a device
    OPERATOR = 5
    ANNOTATION = 6  # of the program's code: record_function, steps, data loaders
    DEVICE_ANNOTATION = 7  # the same, as the time of the kernels in it
    PYTHON = 8  # a function of Python, recorded with stacks
    OVERHEAD = 9  # of the profiler itself


DEVICE_KINDS = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)


@dataclass(frozen=True, slots=True)
class TraceTrack:
    """What events follow each other on: a thread of a process, or a stream of a device, by the names in the file."""

    process: str
    thread: str
    process_name: str = ""
    thread_name: str = ""


@dataclass(frozen=True, slots=True)
class EventTable:
    """Every event with a duration.

    `correlations` join a call of the driver to what it launched; `external_ids` name an operator, and in what a device
    did, the operator that launched it. `shapes` and `types` are the inputs of operators as JSON, or empty.
    """

    texts: Sequence[str]  # the distinct names
    category_texts: Sequence[str]
    track_list: Sequence[TraceTrack]
    shape_texts: Sequence[str]  # also those of `types`
    names: Index
    categories: Small
    kinds: NDArray[np.uint8]
    tracks: Index
    starts_ns: Whole
    durations_ns: Whole
    correlations: Whole
    external_ids: Whole
    shapes: Index
    types: Index

    def __len__(self) -> int:
        return len(self.names)

    @property
    def ends_ns(self) -> Whole:
        return self.starts_ns + self.durations_ns

    def of_kind(self, *kinds: EventKind) -> Mask:
        """Return which rows are of one of the kinds."""
        return np.isin(self.kinds, [int(kind) for kind in kinds])

    def name_of(self, row: int) -> str:
        return self.texts[int(self.names[row])]


@dataclass(frozen=True, slots=True)
class LaunchTable:
    """What devices did: kernels, copies, fills. `events` are rows of the events; an absent value is -1 or NaN."""

    extent_texts: Sequence[str]  # the distinct grids and blocks, as JSON
    events: Index
    devices: Small
    streams: Index
    grids: Index
    blocks: Index
    registers: Index  # of a thread
    shared_memory_bytes: Whole
    blocks_per_sm: Real
    occupancy_percent: Real  # as the profiler estimated it
    copied_bytes: Whole

    def __len__(self) -> int:
        return len(self.events)


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """Allocations, and releases with negative `changes_bytes`.

    `allocated_bytes` and `reserved_bytes` are what a device holds afterwards, or -1.
    """

    times_ns: Whole
    tracks: Index
    device_types: Small  # as torch numbers them: 0 is the CPU, 1 CUDA
    devices: Small
    addresses: NDArray[np.uint64]
    changes_bytes: Whole
    allocated_bytes: Whole
    reserved_bytes: Whole

    def __len__(self) -> int:
        return len(self.times_ns)


@dataclass(frozen=True, slots=True)
class CollectiveTable:
    """What events say about the collective that they are part of. `events` are rows of the events."""

    texts: Sequence[str]  # the distinct names, types and groups
    events: Index
    names: Index
    types: Index
    groups: Index
    group_sizes: Index
    input_elements: Whole
    output_elements: Whole

    def __len__(self) -> int:
        return len(self.events)


@dataclass(frozen=True, slots=True)
class StepTable:
    """The steps that torch.profiler marked, in order of time."""

    numbers: Whole
    tracks: Index
    starts_ns: Whole
    ends_ns: Whole

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class GpuProperties:
    """A GPU as the profiler describes it. What it does not say is 0."""

    number: int
    name: str = ""
    memory_bytes: int = 0
    compute_major: int = 0
    compute_minor: int = 0
    sm_count: int = 0
    threads_per_sm: int = 0
    warp_size: int = 0


@dataclass(frozen=True, slots=True)
class DistributedFacts:
    """How the program was distributed."""

    backend: str = ""
    rank: int = 0
    world_size: int = 1
    nccl_version: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace as far as it could be read. `notes` say, for a reader, what is missing and why."""

    events: EventTable
    launches: LaunchTable
    memory: MemoryTable
    collectives: CollectiveTable
    steps: StepTable
    # The arguments that the FLOPs of a convolution depend on, by event.
    inputs: Mapping[int, str] = field(default_factory=dict)
    gpus: Sequence[GpuProperties] = ()
    distributed: DistributedFacts | None = None
    producer: str = ""  # PyTorch, TensorFlow, or empty
    host: str = ""
    is_unix_time: bool = False
    is_complete: bool = True
    has_shapes: bool = False
    has_memory: bool = False
    notes: Sequence[str] = ()
