"""A profile as dataframes: every sample of the hardware, and every event of the program."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.profiling.events import SystemEvent, TraceEvent, time_text
from trainyard._sdk.profiling.training_job import TrainingJob, readers_of
from trainyard.foundation.extras import extra_of

try:
    import pandas as pd
except ModuleNotFoundError as error:
    raise (extra_of(error) or error) from error

_FOREVER_US = 2**62
_SYSTEM = ("timestamp", "timestamp_us", "value", "system_metric", "dimension", "nodeID", "type")
_FRAMEWORK = (
    *("start_time", "end_time", "start_time_us", "end_time_us", "tid", "pid", "framework_metric", "step", "bytes"),
    *("process", "nodeID"),
)
_LOADERS = (
    *("start_time", "end_time", "start_time_us", "end_time_us", "duration_us", "pid", "framework_metric", "step"),
    *("worker_id", "num_workers", "pin_memory", "process", "node_id"),
)

Frame = Any


class PandasFrame:
    """The profile of a job as dataframes. Times in microseconds count from the first sample.

    Args:
        path: A folder, an `s3://` location, as `latest_job_profiler_artifacts_path()` returns it, or a `TrainingJob`.
        use_in_memory_cache: Accepted, without effect.
        scan_interval: Accepted, without effect.
        api: The API client that reads an `s3://` location. Default: that of a new `Session()`.
    """

    def __init__(
        self,
        path: str | TrainingJob,
        use_in_memory_cache: bool = False,  # noqa: ARG002 - the signature of AWS
        scan_interval: int = 5000000000,  # noqa: ARG002 - the same
        *,
        api: Api | None = None,
    ) -> None:
        self.path = path
        self.system_metrics_reader, self.framework_metrics_reader = readers_of(path, api)
        self.start_time = self.system_metrics_reader.get_timestamp_of_first_available_file()

    def get_all_system_metrics(self, selected_system_metrics: Sequence[str] = ()) -> Frame:
        """Return every sample of the hardware.

        Args:
            selected_system_metrics: Names of the series to return, such as `cpu0`. Default: all.
        """
        self.system_metrics_reader.refresh_event_file_list()
        events = self.system_metrics_reader.iterate_events(0, _FOREVER_US)
        return self._system_frame(events, selected_system_metrics)

    def get_all_framework_metrics(self, selected_framework_metrics: Sequence[str] = ()) -> Frame:
        """Return every event of the program.

        Args:
            selected_framework_metrics: Names of the events, or of their headings, to return. Default: all.
        """
        self.framework_metrics_reader.refresh_event_file_list()
        return self._framework_frame(self._events(), selected_framework_metrics)

    def get_all_dataloader_metrics(self, selected_framework_metrics: Sequence[str] = ()) -> Frame:
        """Return the events of data loaders.

        Args:
            selected_framework_metrics: Regular expressions of the events, or of their headings. Default: all.
        """
        patterns = [re.compile(each) for each in selected_framework_metrics]

        def is_chosen(event: TraceEvent) -> bool:
            names = (event.event_name, event.event_phase)
            return not patterns or any(pattern.search(name) for pattern in patterns for name in names)

        self.framework_metrics_reader.refresh_event_file_list()
        rows = [self._loader_row(event) for event in self._events() if is_chosen(event)]
        return pd.DataFrame(rows, columns=list(_LOADERS)).drop_duplicates()

    def get_profiler_data_by_time(
        self,
        start_time_us: int,
        end_time_us: int,
        cache_metrics: bool = False,  # noqa: ARG002 - the signature of AWS
        selected_framework_metrics: Sequence[str] = (),
        selected_system_metrics: Sequence[str] = (),
        get_framework_metrics: bool = True,
        get_system_metrics: bool = True,
    ) -> tuple[Frame, Frame]:
        """Return the samples and the events of a period.

        Args:
            start_time_us: When the period begins, in microseconds since 1970.
            end_time_us: When it ends.
            cache_metrics: Accepted, without effect.
            selected_framework_metrics: Names of the events, or of their headings, to return. Default: all.
            selected_system_metrics: Names of the series to return, such as `cpu0`. Default: all.
            get_framework_metrics: Whether to return events.
            get_system_metrics: Whether to return samples.
        """
        period = int(start_time_us), int(end_time_us)
        samples = self.system_metrics_reader.iterate_events(*period) if get_system_metrics else ()
        events = self.framework_metrics_reader.iterate_events(*period) if get_framework_metrics else ()
        return (
            self._system_frame(samples, selected_system_metrics),
            self._framework_frame(events, selected_framework_metrics),
        )

    def get_profiler_data_by_step(
        self,
        start_step: int,
        end_step: int,
        cache_metrics: bool = False,  # noqa: ARG002 - the signature of AWS
    ) -> tuple[Frame, Frame]:
        """Return the events of some steps, and the samples of the time that these took.

        Args:
            start_step: Number of the first step.
            end_step: Number of the last step.
            cache_metrics: Accepted, without effect.
        """
        samples, events = self.get_all_system_metrics(), self.get_all_framework_metrics()
        events = events[events["step"].between(start_step, end_step)]
        start_us, end_us = events["start_time_us"].min(), events["end_time_us"].max()
        return samples[samples["timestamp_us"].between(start_us, end_us)], events

    def get_framework_metrics_by_timesteps(
        self, timestep_list: Sequence[str | datetime], selected_framework_metrics: Sequence[str] = ()
    ) -> tuple[dict[str, float], dict[str, int], dict[str, int]]:
        """Return what the program did at some times, by heading, by name, and by mode of the step.

        The first result is relative to its largest; the others are in microseconds.

        Args:
            timestep_list: The times, as the column `timestamp` has them.
            selected_framework_metrics: Names of the events, or of their headings. Default: all.
        """
        times = sorted(self.convert_datetime_to_timestamp(each) for each in timestep_list)
        headings: dict[str, int] = {}
        names: dict[str, int] = {}
        for event in self.framework_metrics_reader.iterate_events(times[0], times[-1]) if times else ():
            count = sum(event.start_time < at_us < event.end_time for at_us in times)
            if count and _is_selected(event, selected_framework_metrics):
                headings[event.event_phase] = headings.get(event.event_phase, 0) + event.duration * count
                if "Step" not in event.event_name:
                    names[event.event_name] = names.get(event.event_name, 0) + event.duration * count
        phases = {name: value for name, value in headings.items() if "Step" in name}
        others = {name: value for name, value in headings.items() if "Step" not in name}
        return _relative(others), names, phases

    def get_framework_metrics_by_begin_and_end_timesteps(
        self,
        begin_timestep_list: Sequence[str | datetime],
        end_timestep_list: Sequence[str | datetime],
        selected_framework_metrics: Sequence[str] = (),
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return what the program did in some periods, by heading and by name, each relative to its largest.

        Args:
            begin_timestep_list: When the periods begin, as the column `start_time` has it.
            end_timestep_list: When they end.
            selected_framework_metrics: Names of the events, or of their headings. Default: all.
        """
        begins, ends = (
            [self.convert_datetime_to_timestamp(each) for each in times]
            for times in (begin_timestep_list, end_timestep_list)
        )
        headings: dict[str, int] = {}
        names: dict[str, int] = {}
        for event in self.framework_metrics_reader.iterate_events(min(begins), max(ends)) if begins else ():
            if "Step" in event.event_name or not _is_selected(event, selected_framework_metrics):
                continue
            periods = zip(begins, ends, strict=True)
            count = sum(event.end_time >= begin and event.start_time <= end for begin, end in periods)
            if count:
                headings[event.event_phase] = headings.get(event.event_phase, 0) + event.duration * count
                names[event.event_name] = names.get(event.event_name, 0) + event.duration * count
        return _relative(headings), _relative(names)

    def convert_datetime_to_timestamp(self, timestamp: str | datetime) -> int:
        """Return a time in microseconds since 1970.

        Args:
            timestamp: The time: a datetime, or a text as the columns have it.
        """
        moment = pd.to_datetime(timestamp, format="%Y-%m-%dT%H:%M:%S:%f", utc=True)
        return int(moment.value // 1000)

    def _events(self) -> Iterable[TraceEvent]:
        events: Iterable[TraceEvent] = self.framework_metrics_reader.iterate_events(0, _FOREVER_US)
        return events

    def _system_frame(self, events: Iterable[SystemEvent], selected: Sequence[str]) -> Frame:
        rows = [
            (time_text(at_us), at_us - self.start_time, each.value, each.name, each.dimension, each.node_id, each.type)
            for each in events
            if not selected or each.name in selected
            for at_us in (round(each.timestamp * 1e6),)
        ]
        return pd.DataFrame(rows, columns=list(_SYSTEM)).drop_duplicates()

    def _framework_frame(self, events: Iterable[TraceEvent], selected: Sequence[str]) -> Frame:
        rows = [self._row(event) for event in events if _is_selected(event, selected)]
        return pd.DataFrame(rows, columns=list(_FRAMEWORK)).drop_duplicates()

    def _row(self, event: TraceEvent) -> tuple[Any, ...]:
        known = event.event_args or {}
        return (
            *self._times(event),
            event.tid,
            event.pid,
            _name(event),
            -1 if event.step is None else event.step,
            known.get("bytes_fetched", -1),
            event.event_phase,
            event.node_id,
        )

    def _loader_row(self, event: TraceEvent) -> tuple[Any, ...]:
        known = event.event_args or {}
        return (
            *self._times(event),
            event.duration,
            event.pid,
            _name(event),
            -1 if event.step is None else event.step,
            known.get("worker_id", -1),
            known.get("num_workers", -1),
            str(known["pin_memory"] is True) if "pin_memory" in known else "NA",
            event.event_phase,
            event.node_id,
        )

    def _times(self, event: TraceEvent) -> tuple[str, str, int, int]:
        start_us, end_us = event.start_time, event.end_time
        return time_text(start_us), time_text(end_us), start_us - self.start_time, end_us - self.start_time


def frame_of(rows: Sequence[Mapping[str, Any]]) -> Frame:
    """Return a dataframe of rows."""
    return pd.DataFrame(rows)


def _is_selected(event: TraceEvent, selected: Sequence[str]) -> bool:
    return not selected or event.event_name in selected or event.event_phase in selected


def _name(event: TraceEvent) -> str:
    known = event.event_args or {}
    return str(known.get("layer_name") or known.get("name") or event.event_name)


def _relative(values: dict[str, int]) -> dict[str, float]:
    highest = max(values.values(), default=0) or 1
    return {name: value / highest for name, value in values.items()}
