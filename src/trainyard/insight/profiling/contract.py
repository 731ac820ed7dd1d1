"""The profile of a job as values: what the analysis, the rules and the report read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, StepPhase
from trainyard.formats.tensors.contract import Mode

Times = NDArray[np.int64]  # Unix microseconds
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HardwareSamples:
    """The samples of one instance, in order of time. A value that a sample lacks is NaN."""

    times_us: Times
    series: Mapping[HardwareSeries, Numbers]

    def __len__(self) -> int:
        return len(self.times_us)

    def of(self, metric: HardwareMetric) -> Mapping[str, Numbers]:
        """Return the values of a metric by device."""
        return {key.device: values for key, values in self.series.items() if key.metric is metric}


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The steps of one rank, in order of time. `phases_s` has a column for each `StepPhase`; a row adds up to its step.

    A row may stand for several steps in a row: `counts` says how many, and `numbers` has the first of them.
    """

    numbers: NDArray[np.int64]
    counts: NDArray[np.int64]
    modes: Sequence[Mode]
    starts_us: Times
    ends_us: Times
    phases_s: Numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def durations_s(self) -> Numbers:
        """The mean duration of the steps of each row."""
        duration_s: Numbers = (self.ends_us - self.starts_us) / 1e6 / np.maximum(self.counts, 1)
        return duration_s

    def phase_s(self, phase: StepPhase) -> Numbers:
        column: Numbers = self.phases_s[:, phase]
        return column


@dataclass(frozen=True, slots=True)
class LoaderFacts:
    """How one data loader of a rank is set up, and how long the program waited for its batches.

    `fetch_s` and `wait_s` are samples: what it took a worker, or the rank itself without workers, to make a batch, and
    what the rank waited for one. `batch_size` is None if the loader does not make batches itself.
    """

    name: str
    workers: int
    is_pinning: bool
    prefetch: int | None
    batch_size: int | None
    fetch_s: Sequence[float] = ()
    wait_s: Sequence[float] = ()
    is_persistent: bool = False


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of Python on which the training thread was seen, and how often, by the phase of the step.

    `function` and `file` are of the innermost frame that is the program's own, and `called` is the innermost frame at
    all, which may be in a library: "clip_grad_norm_ (torch/nn/utils/clip_grad.py:37)". If that is the program's own
    too, `called` is the expression that it evaluates, as in its source: "loss.item()".
    """

    phase: StepPhase
    function: str
    file: str
    line: int
    called: str
    samples: int


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """What held the memory of a device or of the process, in bytes, when most of it was used."""

    name: str  # parameters, gradients, optimizer, activations, libraries, other …
    bytes: int


@dataclass(frozen=True, slots=True)
class Synchronization:
    """A kind of call in which the training thread waits until the GPU has computed everything so far.

    The figures are means over the training steps.
    """

    name: str  # item, cpu, numpy, tolist, nonzero …
    calls_per_step: float
    seconds_per_step: float


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """What the hook learned about the program on one rank. Unknown facts are None or empty.

    `hot_lines` are samples of the stack of the training thread, of which `stack_samples` were taken in all.
    """

    framework: str = ""
    framework_version: str = ""
    device: str = ""  # cpu, cuda …
    precision: str = ""  # the type in which most of the forward computes: float32, bfloat16 …
    threads: int | None = None
    parameters: int | None = None
    is_compiled: bool = False
    is_channels_last: bool = False
    has_convolutions: bool = False
    samples_per_step: float | None = None
    loaders: Sequence[LoaderFacts] = ()
    hot_lines: Sequence[HotLine] = ()
    stack_samples: int = 0
    memory_holders: Sequence[MemoryHolder] = ()
    synchronizations: Sequence[Synchronization] = ()
    # What a trial changed in the program, by ProgramChange: the values that were applied, not those that were wanted.
    changes: Mapping[str, str] = field(default_factory=dict)

    @property
    def main_loader(self) -> LoaderFacts | None:
        """The loader that takes most time, which is that of the training."""
        return max(self.loaders, key=lambda each: (sum(each.wait_s), sum(each.fetch_s), each.workers), default=None)


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """What an instance offers. `memory_bytes` and `cores` are what the job may use."""

    instance_type: str = ""
    cores: float | None = None
    memory_bytes: int | None = None
    gpus: Sequence[str] = ()  # their names
    price_per_hour: float | None = None
    currency: str = ""


@dataclass(frozen=True, slots=True)
class RankProfile:
    """What is known about one rank; ranks are named as workers of trials are."""

    name: str
    host: str
    rank: int
    steps: StepTimes
    program: ProgramFacts = ProgramFacts()


@dataclass(frozen=True, slots=True)
class JobProfile:
    """Everything that was recorded of a job so far, or in a part of its time.

    `ended_us` is None while the program runs. `notes` say what is missing or could not be read, for the reader.
    """

    job: str
    started_us: int
    ended_us: int | None
    hardware: Mapping[str, HardwareSamples] = field(default_factory=dict)  # by host
    instances: Mapping[str, InstanceFacts] = field(default_factory=dict)  # by host
    ranks: Sequence[RankProfile] = ()
    notes: Sequence[str] = ()
