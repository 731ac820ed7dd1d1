"""What the sampler is made of: sources that read series, and sinks that take samples."""

from collections.abc import Sequence
from typing import Protocol

from trainyard.formats.profiles.contract import HardwareSeries


class HardwareSource(Protocol):
    """Reads some series of the hardware. One thread uses it; nothing that it cannot read raises.

    `series` may change with a read, when devices come or go. `interval_s` is how often it needs to be read at most.
    """

    @property
    def series(self) -> Sequence[HardwareSeries]: ...

    @property
    def interval_s(self) -> float: ...

    def read(self, now_s: float, /) -> Sequence[float]:
        """Return the values in the order of the series; NaN for one that cannot be read, or not yet.

        `now_s` is a time of the boot clock, later than at the read before.
        """
        ...

    def close(self) -> None: ...


class SampleSink(Protocol):
    """Takes the samples of an instance. One thread uses it; what a sink cannot write it drops, and raises nothing."""

    def begin(self, series: Sequence[HardwareSeries], interval_us: int) -> None:
        """From now on, samples have these series, about at this interval."""
        ...

    def append(self, time_us: int, values: Sequence[float]) -> None:
        """Take a sample. Times increase."""
        ...

    def flush(self) -> None:
        """Make what was taken visible to readers. Called about once a second."""
        ...

    def close(self) -> None:
        """Write what is left. Nothing is taken any more."""
        ...
