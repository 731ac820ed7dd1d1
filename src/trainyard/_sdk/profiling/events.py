"""What readers of profiles return: samples of the hardware, and spans of a program. Attributes have AWS's names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any


class TimeUnits(Enum):
    """The unit of a time since 1970."""

    SECONDS = 1
    MILLISECONDS = 2
    MICROSECONDS = 3
    NANOSECONDS = 4


_MICROS = {
    TimeUnits.SECONDS: 1e6,
    TimeUnits.MILLISECONDS: 1e3,
    TimeUnits.MICROSECONDS: 1.0,
    TimeUnits.NANOSECONDS: 1e-3,
}


def to_micros(time: float, unit: TimeUnits = TimeUnits.MICROSECONDS) -> int:
    """Return a time in microseconds.

    Args:
        time: The time, since 1970.
        unit: Its unit.
    """
    # Whole numbers stay exact.
    return int(time) if unit is TimeUnits.MICROSECONDS else int(time * _MICROS[unit])


def time_text(time_us: float) -> str:
    """Return a time as AWS's tables write it, in UTC.

    Args:
        time_us: The time, in microseconds since 1970.
    """
    return f"{datetime.fromtimestamp(time_us / 1e6, UTC):%Y-%m-%dT%H:%M:%S:%f}"


@dataclass(slots=True)
class SystemEvent:
    """One value of one metric of an instance.

    Args:
        type: Kind of hardware: `cpu`, `gpu`, `memory`, `i/o` or `network`.
        name: The device, such as `cpu0`, or the metric of hardware without devices.
        dimension: The metric, such as `CPUUtilization`.
        value: The value.
        node_id: The instance, such as `algo-1`.
        timestamp: When it was measured, in seconds since 1970.
    """

    type: str
    name: str
    dimension: str
    value: float
    node_id: str
    timestamp: float


@dataclass(slots=True)
class ProcessInfo:
    """A heading of a timeline, with its threads.

    Args:
        id: Number of the heading in its file.
        name: Its name, such as `Step:ModeKeys.TRAIN`.
    """

    id: int
    name: str


@dataclass(slots=True)
class TraceEvent:
    """A span of time of the program: a step, a phase of it, a call.

    Args:
        start_time: When it began, in microseconds since 1970.
        event_name: Its name.
        duration: How long it took, in microseconds.
        node_id: The instance, with the process if that is known: `algo-1-77`.
        event_phase: The heading under which it is, such as `Step:ModeKeys.TRAIN` or `Forward`.
        event_args: What else is known of it.
        pid: Number of the process.
        tid: Number of the thread.
        phase: How it is written in a Chrome trace: `X` for a span.
        file_type: What kind of file it is from.
        process_info: The heading.
    """

    start_time: int
    event_name: str
    duration: int
    node_id: str = ""
    event_phase: str = ""
    event_args: Mapping[str, Any] | None = None
    pid: int = 0
    tid: int = 0
    phase: str = "X"
    file_type: str = ""
    process_info: ProcessInfo | None = field(default=None, repr=False)

    @property
    def end_time(self) -> int:
        """When it ended, in microseconds since 1970."""
        return self.start_time + self.duration

    @property
    def phase_pid(self) -> int:
        """Number of the heading."""
        return self.process_info.id if self.process_info else self.pid

    @property
    def phase_tid(self) -> int:
        """Number of the thread under the heading."""
        return self.tid

    @property
    def step(self) -> int | None:
        """Number of the step, if the event is of one."""
        try:
            return int((self.event_args or {})["step_num"])
        except (KeyError, TypeError, ValueError):
            return None

    def to_json(self) -> str:
        """Return the event as an entry of a Chrome trace."""
        written: dict[str, Any] = {
            "name": self.event_name,
            "pid": self.pid,
            "tid": self.tid,
            "ph": self.phase,
            "ts": self.start_time,
        }
        if self.phase == "X":
            written["dur"] = self.duration
        if self.event_args:
            written["args"] = dict(self.event_args)
        return json.dumps(written)
