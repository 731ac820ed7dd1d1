"""Readers of the files of a profile, in a folder or on S3, with the methods of AWS's readers."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

from trainyard._sdk.connection import Api
from trainyard._sdk.profiling.event_files import (
    PYTHONTIMELINE_SUFFIX,
    MetricsFile,
    list_event_files,
    list_system_files,
    read_system_events,
    read_trace_events,
)
from trainyard._sdk.profiling.events import SystemEvent, TimeUnits, TraceEvent, to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.sources import ByteSource, FolderSource

# A file with samples begins that long before the last of them, and may begin later on another instance.
_SAMPLES_US = 120_000_000
# Events are in a file that ends after them: by this time, or in the one after.
_TRAILING_US = 180_000_000
# Files of other instances may arrive that much later.
_LATE = timedelta(minutes=10)
_MAX_NOTES = 100
# How long a scan for the times of steps may reach.
_FOREVER_US = 2**62

Event = TypeVar("Event", SystemEvent, TraceEvent)


class MetricsReader(Generic[Event]):
    """The base of the readers. `notes` say what could not be read."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def refresh_event_file_list(self) -> None:
        """Look for data that is there by now."""
        raise NotImplementedError

    def get_timestamp_of_first_available_file(self) -> int:
        """Return when the first data begins, in microseconds since 1970; 0 if there is none."""
        raise NotImplementedError

    def get_timestamp_of_latest_available_file(self) -> int:
        """Return up to when there is data, in microseconds since 1970; 0 if there is none."""
        raise NotImplementedError

    def iterate_events(self, start_us: int, end_us: int, file_suffixes: Sequence[str] | None = None) -> Iterator[Event]:
        """Yield the events of a period one by one, in the order in which they are stored.

        Args:
            start_us: When the period begins, in microseconds since 1970.
            end_us: When it ends. Events at that time, or that overlap it, are included.
            file_suffixes: Ends of the names of the files to read. Default: all.
        """
        raise NotImplementedError

    def get_events(
        self,
        start_time: float,
        end_time: float,
        unit: TimeUnits = TimeUnits.MICROSECONDS,
        event_type: str | None = None,
        file_suffix_filter: Sequence[str] | None = None,
    ) -> list[Event]:
        """Return the events of a period.

        Args:
            start_time: When the period begins, since 1970.
            end_time: When it ends.
            unit: The unit of both times.
            event_type: Type of the samples to return, such as `cpu`. Default: all.
            file_suffix_filter: Ends of the names of the files to read. Default: all.
        """
        events = self.iterate_events(to_micros(start_time, unit), to_micros(end_time, unit), file_suffix_filter)
        if event_type is None:
            return list(events)
        return [event for event in events if getattr(event, "type", None) == event_type]

    def get_events_by_step(
        self,
        start_step: int,
        end_step: int,
        event_type: str | None = None,
        file_suffix_filter: Sequence[str] | None = None,
    ) -> list[Event]:
        """Return the events from the beginning of one step to that of another.

        Args:
            start_step: Number of the first step.
            end_step: Number of the step before which to end.
            event_type: Type of the samples to return, such as `cpu`. Default: all.
            file_suffix_filter: Ends of the names of the files to read. Default: all.
        """
        start_us, end_us = self.time_of_steps(start_step, end_step)
        return self.get_events(start_us, end_us, TimeUnits.MICROSECONDS, event_type, file_suffix_filter)

    def time_of_steps(self, start_step: int, end_step: int) -> tuple[int, int]:
        """Return when one step begins, and the last microsecond before another does; zeros if one is not known.

        Args:
            start_step: Number of the first step.
            end_step: Number of the step before which to end.
        """
        first: dict[int, int] = {}
        for event in self.iterate_steps():
            if event.step in (start_step, end_step):
                first[event.step] = min(event.start_time, first.get(event.step, event.start_time))
        if start_step not in first or end_step not in first:
            return 0, 0
        return first[start_step], first[end_step] - 1

    def iterate_steps(self) -> Iterator[TraceEvent]:
        """Yield the events that have the number of a step."""
        raise NotImplementedError

    def _note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(text)


class _EventFileReader(MetricsReader[Event]):
    """Reads files in AWS's layout below a source."""

    def __init__(self, source: ByteSource, listing: Callable[..., list[MetricsFile]]) -> None:
        super().__init__()
        self._source, self._listing = source, listing
        self._files: dict[str, MetricsFile] = {}
        self.refresh_event_file_list()

    def refresh_event_file_list(self) -> None:
        after = ""
        if self._files:
            latest = datetime.fromtimestamp(max(file.time_us for file in self._files.values()) / 1e6, UTC) - _LATE
            after = f"{latest:%Y%m%d%H}"
        self._files |= {file.name: file for file in self._listing(self._source, after_hour=after)}

    def get_timestamp_of_first_available_file(self) -> int:
        return min((file.time_us for file in self._files.values()), default=0)

    def get_timestamp_of_latest_available_file(self) -> int:
        return max((file.time_us for file in self._files.values()), default=0)

    def _in_order(self) -> list[MetricsFile]:
        return sorted(self._files.values())


class SystemMetricsReader(_EventFileReader[SystemEvent]):
    """Reads samples of the hardware.

    Args:
        source: The source of the bytes, below which `system` lies.
    """

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source, list_system_files)

    def iterate_events(
        self,
        start_us: int,
        end_us: int,
        file_suffixes: Sequence[str] | None = None,
    ) -> Iterator[SystemEvent]:
        """Yield the samples of a period one by one.

        Args:
            start_us: When the period begins, in microseconds since 1970.
            end_us: When it ends, inclusive.
            file_suffixes: Ends of the names of the files to read. Default: all.
        """
        if end_us >= self.get_timestamp_of_latest_available_file():
            self.refresh_event_file_list()
        for file in self._in_order():
            if file.time_us < start_us - _SAMPLES_US or file.time_us > end_us or not _ends(file, file_suffixes):
                continue
            for event in read_system_events(self._source, file, self._note):
                if start_us <= int(event.timestamp * 1e6) <= end_us:
                    yield event

    def get_timestamp_of_latest_available_file(self) -> int:
        """Return up to when there are samples, to the end of the last minute; 0 if there are none."""
        latest = super().get_timestamp_of_latest_available_file()
        # The name of a file has the time of its first sample.
        return latest + 60_000_000 if latest else 0

    def iterate_steps(self) -> Iterator[TraceEvent]:
        """Yield the steps of the program, which lie beside the samples."""
        return AlgorithmMetricsReader(self._source).iterate_steps()


class AlgorithmMetricsReader(_EventFileReader[TraceEvent]):
    """Reads the events of the program: its steps, their phases, data loaders.

    Args:
        source: The source of the bytes, below which `framework` lies.
    """

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source, list_event_files)

    def iterate_events(
        self,
        start_us: int,
        end_us: int,
        file_suffixes: Sequence[str] | None = None,
    ) -> Iterator[TraceEvent]:
        """Yield the events of a period one by one.

        Args:
            start_us: When the period begins, in microseconds since 1970.
            end_us: When it ends. Events that overlap it are included.
            file_suffixes: Ends of the names of the files to read. Default: all.
        """
        if end_us >= self.get_timestamp_of_latest_available_file():
            self.refresh_event_file_list()
        files = self._in_order()
        first = bisect_left([file.time_us for file in files], start_us)
        for file in files[first:]:
            if _ends(file, file_suffixes):
                for event in read_trace_events(self._source, file, self._note):
                    if event.end_time >= start_us and event.start_time <= end_us:
                        yield event
            if file.time_us > end_us + _TRAILING_US:
                return

    def iterate_steps(self) -> Iterator[TraceEvent]:
        """Yield the events that have the number of a step."""
        for event in self.iterate_events(0, _FOREVER_US, [PYTHONTIMELINE_SUFFIX]):
            if event.step is not None:
                yield event


class LocalSystemMetricsReader(SystemMetricsReader):
    """Reads samples of the hardware from a folder.

    Args:
        trace_root_folder: The folder, which has a folder `system`.
        use_in_memory_cache: Accepted, without effect.
    """

    def __init__(self, trace_root_folder: str, use_in_memory_cache: bool = False) -> None:  # noqa: ARG002
        super().__init__(FolderSource(Path(trace_root_folder).expanduser()))


class LocalAlgorithmMetricsReader(AlgorithmMetricsReader):
    """Reads the events of a program from a folder.

    Args:
        trace_root_folder: The folder, which has a folder `framework`.
        use_in_memory_cache: Accepted, without effect.
    """

    def __init__(self, trace_root_folder: str, use_in_memory_cache: bool = False) -> None:  # noqa: ARG002
        super().__init__(FolderSource(Path(trace_root_folder).expanduser()))


class S3SystemMetricsReader(SystemMetricsReader):
    """Reads samples of the hardware from S3.

    Args:
        s3_trial_path: The `s3://` location of the profile, below which `system` lies.
        use_in_memory_cache: Accepted, without effect.
        api: The API client to read with. Default: that of a new `Session()`.
    """

    def __init__(
        self,
        s3_trial_path: str,
        use_in_memory_cache: bool = False,  # noqa: ARG002 - the signature of AWS
        *,
        api: Api | None = None,
    ) -> None:
        super().__init__(s3_source(s3_trial_path, api))


class S3AlgorithmMetricsReader(AlgorithmMetricsReader):
    """Reads the events of a program from S3.

    Args:
        s3_trial_path: The `s3://` location of the profile, below which `framework` lies.
        use_in_memory_cache: Accepted, without effect.
        api: The API client to read with. Default: that of a new `Session()`.
    """

    def __init__(
        self,
        s3_trial_path: str,
        use_in_memory_cache: bool = False,  # noqa: ARG002 - the signature of AWS
        *,
        api: Api | None = None,
    ) -> None:
        super().__init__(s3_source(s3_trial_path, api))


def s3_source(uri: str, api: Api | None) -> ByteSource:
    """Return the source at an `s3://` location; InvalidRequest if it is none."""
    from trainyard._sdk.storage.s3_source import S3Source, source_of_session

    if not uri.startswith("s3://"):
        raise InvalidRequest(f'"{uri}" is not on S3; write it like s3://bucket/job/profiler-output.')
    return S3Source(uri, api) if api else source_of_session(uri)


def source_at(path: str, api: Api | None = None) -> ByteSource:
    """Return the source at a path, or at an `s3://` location."""
    return s3_source(path, api) if path.startswith("s3://") else FolderSource(Path(path).expanduser())


def now_us() -> int:
    """Return the time of this machine, in microseconds since 1970."""
    return time.time_ns() // 1000


def _ends(file: MetricsFile, suffixes: Sequence[str] | None) -> bool:
    return suffixes is None or file.name.endswith(tuple(suffixes))


# What charts and tables accept: a reader of files, or of the yard.
AnyReader = MetricsReader[Any]
