"""What the yard asks about a trace of a job, and what it learns. Everything here is plain JSON between the two.

Arrays travel beside an answer, as little-endian bytes: its blobs, which have names. All times count from the start of
the trace, in nanoseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace that a job has stored. `id` names this content of it; `step` is where its window began, if the hook
    recorded it."""

    id: str
    uri: str
    size_bytes: int
    modified_at: datetime
    instance: str = ""
    worker: str = ""
    step: int | None = None
    is_of_program: bool = False


@dataclass(frozen=True, slots=True)
class SummaryQuestion:
    """What the trace says in figures; see `TraceProfile`. Of each table, `most` rows."""

    most: int


@dataclass(frozen=True, slots=True)
class PartQuestion:
    """A part of the timeline; see `TimelinePart`."""

    first_ns: int
    last_ns: int
    resolution_ns: int
    most: int


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """Slices by a part of their names; see `FoundSlices`."""

    text: str
    after: int
    most: int


@dataclass(frozen=True, slots=True)
class SliceQuestion:
    """One slice; see `SliceDetails`."""

    number: int


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """The figures of a trace, as the API has them. Blobs: for each curve of memory, its place and the name of a column.

    `started_us` is Unix time in microseconds, None if the trace does not say when it was taken.
    """

    started_us: int | None
    duration_ns: int
    producer: str
    host: str
    events: int
    slices: int
    lanes: Sequence[Mapping[str, Any]] = ()
    steps: Sequence[Mapping[str, Any]] = ()
    roles: Sequence[Mapping[str, Any]] = ()
    operators: Sequence[Mapping[str, Any]] = ()
    operator_count: int = 0
    shapes: Sequence[Mapping[str, Any]] = ()
    shape_count: int = 0
    kernels: Sequence[Mapping[str, Any]] = ()
    kernel_count: int = 0
    python: Sequence[Mapping[str, Any]] = ()
    python_count: int = 0
    memory: Sequence[Mapping[str, Any]] = ()
    collectives: Sequence[Mapping[str, Any]] = ()
    exposed_communication: float | None = None
    gpus: Sequence[Mapping[str, Any]] = ()
    rank: int | None = None
    world_size: int = 1
    is_complete: bool = True
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """Blobs: lanes, depths, names, roles, counts, numbers (int32), starts and durations (float64)."""

    resolution_ns: int = 1
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Slices as the API has them."""

    slices: Sequence[Mapping[str, Any]] = ()
    total: int = 0
    total_ns: int = 0


@dataclass(frozen=True, slots=True)
class SliceAnswer:
    """A slice as the API has it, with all details."""

    details: Mapping[str, Any] = field(default_factory=dict)
