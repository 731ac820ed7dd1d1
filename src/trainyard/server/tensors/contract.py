"""What the yard asks about the tensors of a job, and what it learns. Everything here is plain JSON between the two.

Arrays travel beside an answer, as little-endian bytes: its blobs, which have names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TensorChoice:
    """Which tensors: those that fulfil everything that is set. `pattern` is searched anywhere in a name."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    collection: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class StepChoice:
    """Which steps: those of a mode, from `first` to `last`, both included; None for no bound.

    All numbers of steps are those among the steps of all modes.
    """

    mode: str = "GLOBAL"
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class TensorsQuestion:
    """Which tensors there are: a page of them that begins at the position `after`."""

    choice: TensorChoice
    after: int
    limit: int


@dataclass(frozen=True, slots=True)
class GridQuestion:
    """A statistic of some tensors in groups of steps; see `StatisticsGrid`."""

    choice: TensorChoice
    statistic: str
    steps: StepChoice
    worker: str
    max_groups: int
    after: int
    limit: int


@dataclass(frozen=True, slots=True)
class HistogramsQuestion:
    """The distribution of a tensor over the steps; see `Distributions`."""

    tensor: str
    steps: StepChoice
    worker: str
    max_steps: int


@dataclass(frozen=True, slots=True)
class ValuesQuestion:
    """Some elements of a tensor in a step; see `Rectangle`."""

    tensor: str
    step: int
    worker: str
    first_row: int
    first_column: int
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class KnownTensor:
    """One tensor. `workers` have recorded it; `measures` are the words of its probes."""

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    collections: tuple[str, ...]
    module: str
    whole_shape: tuple[int, ...]
    workers: tuple[str, ...]
    measures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownTensors:
    """A page of the tensors, and what is known of the whole trial. -1 is the step before the first."""

    tensors: Sequence[KnownTensor] = ()
    total: int = 0
    collections: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, int] = field(default_factory=dict)
    workers: Sequence[str] = ()
    modes: Sequence[str] = ()
    first_step: int = -1
    last_step: int = -1
    steps: int = 0
    saved_steps: Sequence[int] = ()
    saved_total: int = 0
    has_ended: bool = False
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class GridAnswer:
    """Blobs: means, minima, maxima (float32) and contents (uint8), each tensors x groups."""

    tensors: Sequence[str] = ()
    total: int = 0
    first_steps: Sequence[int] = ()
    last_steps: Sequence[int] = ()
    worker: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class HistogramsAnswer:
    """Blobs: edges (float64) and counts (uint32, steps x bins)."""

    steps: Sequence[int] = ()
    bins: int = 0
    is_recorded: bool = False
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ValuesAnswer:
    """Blobs: values (float64, shown rows x shown columns). `statistics` are of the whole tensor, None if not finite."""

    shape: Sequence[int] = ()
    dtype: str = ""
    rows: int = 0
    columns: int = 0
    first_row: int = 0
    first_column: int = 0
    shown_rows: int = 0
    shown_columns: int = 0
    statistics: Mapping[str, float | None] = field(default_factory=dict)
    notes: Sequence[str] = ()
