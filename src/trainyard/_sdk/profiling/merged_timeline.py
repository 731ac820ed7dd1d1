"""A profile as one trace for Perfetto and Chrome, on one clock.

Samples of the hardware are counters; steps, their phases, and the operators and kernels of recorded traces are slices.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from trainyard._sdk.connection import Api
from trainyard._sdk.profiling.event_files import MetricsFile, SourceFile, list_traces
from trainyard._sdk.profiling.events import SystemEvent, TraceEvent
from trainyard._sdk.profiling.readers import AnyReader, source_at
from trainyard._sdk.profiling.training_job import TrainingJob, readers_of
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.extras import MissingExtra
from trainyard.foundation.sources import ByteSource

MERGEDTIMELINE_SUFFIX = "merged_timeline.json"
# GPUs that are used less are marked.
_LOW_GPU = 85.0
_GPU = "GPUUtilization"
# Where the headings of a kind begin, in the order in which viewers show them.
_ORDER = {
    "Step:": 1,
    "Forward": 10_000,
    "Backward": 20_000,
    "Optimizer": 25_000,
    "DataLoader": 30_000,
    "Communication": 40_000,
    "Checkpoint": 45_000,
    "Horovod": 50_000,
}
_OTHERS, _COUNTERS, _TRACES = 100_000, 500_000, 1_000_000


class MergeUnit(Enum):
    """What the limits of a timeline are: times, or numbers of steps."""

    TIME = "time"
    STEP = "step"


class MergedTimeline:
    """Merges a profile into one file, which https://ui.perfetto.dev and chrome://tracing open.

    It is written as it is read, so that its size does not matter. `notes` say what could not be read.

    Args:
        path: A folder, an `s3://` location, or a `TrainingJob`.
        file_suffix_filter: Ends of the names of the files to merge, such as `pythontimeline.json`. Default: all.
        output_directory: Folder for the file. Default: `path`, or the current folder if that is none.
        api: The API client that reads an `s3://` location. Default: that of a new `Session()`.
    """

    def __init__(
        self,
        path: str | TrainingJob,
        file_suffix_filter: Sequence[str] | None = None,
        output_directory: str | None = None,
        *,
        api: Api | None = None,
    ) -> None:
        self.path, self.file_suffix_filter = path, file_suffix_filter
        is_folder = isinstance(path, str) and not path.startswith("s3://")
        self.out_dir = output_directory or (str(path) if is_folder else ".")
        self.notes: list[str] = []
        self._system, self._framework = readers_of(path, api)
        self._source = _source_of_traces(path, api)

    @property
    def framework_metrics_reader(self) -> AnyReader:
        """The reader of the program's events."""
        return self._framework

    def file_name(self, end_timestamp_in_us: int) -> str:
        """Return the path of the file.

        Args:
            end_timestamp_in_us: When the timeline ends, in microseconds since 1970.
        """
        return str(Path(self.out_dir).expanduser() / f"{int(end_timestamp_in_us)}_{MERGEDTIMELINE_SUFFIX}")

    def merge_timeline(
        self,
        start: int,
        end: int,
        unit: MergeUnit | str = MergeUnit.TIME,
        sys_metrics_filter: Mapping[str, Any] | None = {"lowgpu": ()},
    ) -> str:
        """Write the timeline of a period, and return the path of the file.

        Args:
            start: When the period begins, in microseconds since 1970, or its first step.
            end: When it ends, or the step before which it ends.
            unit: What these are: `MergeUnit.TIME` or `MergeUnit.STEP`.
            sys_metrics_filter: With `lowgpu`, times at which a GPU was used by less than 85 % are marked. None leaves
                the samples of the hardware out.

        Raises:
            InvalidRequest: A step is not known.
        """
        start_us, end_us = int(start), int(end)
        if MergeUnit(unit) is MergeUnit.STEP:
            start_us, end_us = self._framework.time_of_steps(int(start), int(end))
            if not end_us:
                raise InvalidRequest(
                    f"There are no events of the steps {start} and {end}; give steps that were recorded."
                )
        path = self.file_name(end_us)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with _TraceWriter.create(path) as writer:
            for event in self._framework.iterate_events(start_us, end_us, self.file_suffix_filter):
                writer.write_slice(event)
            if sys_metrics_filter is not None:
                for sample in self._system.iterate_events(start_us, end_us):
                    writer.write_counter(sample)
                    if "lowgpu" in sys_metrics_filter and sample.dimension == _GPU and sample.value < _LOW_GPU:
                        writer.write_mark(sample)
            for file in list_traces(self._source) if self._source else ():
                if self.file_suffix_filter is None or file.name.endswith(tuple(self.file_suffix_filter)):
                    self._merge_trace(writer, file, start_us, end_us)
        self.notes += [*self._framework.notes, *self._system.notes]
        return path

    def _merge_trace(self, writer: "_TraceWriter", file: MetricsFile, start_us: int, end_us: int) -> None:
        assert self._source is not None, "files come from a source"
        try:
            # Imported here: only traces need the extra.
            from trainyard.formats.profiles.traces.reader import read_trace
        except (MissingExtra, ModuleNotFoundError) as error:
            self.notes.append(f"{file.name} is left out: {error}")
            return
        with SourceFile(self._source, file.name) as raw:
            trace = read_trace(BufferedReader(raw, 1 << 20))
        self.notes += [f"{file.name}: {note}" for note in trace.notes]
        if not trace.is_unix_time:
            self.notes.append(f"{file.name} is left out: its times are not on the clock of the other events.")
            return
        writer.write_trace(trace, file.node, start_us, end_us)


class _TraceWriter:
    """Writes a trace, entry by entry, and names each heading and thread before its first entry."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._is_first = True
        self._headings: dict[tuple[str, str], int] = {}
        # By heading: the number of each thread.
        self._threads: dict[int, dict[str, int]] = {}
        self._next = dict(_ORDER)
        self._others, self._counters, self._traces = _OTHERS, _COUNTERS, _TRACES

    @classmethod
    @contextmanager
    def create(cls, path: str) -> Iterator["_TraceWriter"]:
        """Open a file; its name appears when it is complete."""
        partial = Path(f"{path}.partial")
        with partial.open("w") as file:
            file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
            yield cls(file)
            file.write("\n]}\n")
        partial.replace(path)

    def write_slice(self, event: TraceEvent) -> None:
        heading = self._heading(event.event_phase or event.event_name)
        thread = self._thread(heading, f"{event.node_id} {event.tid}".strip())
        entry: dict[str, Any] = {"ph": "X", "name": event.event_name, "pid": heading, "tid": thread}
        entry |= {"ts": event.start_time, "dur": event.duration}
        self._write(entry | ({"args": dict(event.event_args)} if event.event_args else {}))

    def write_counter(self, sample: SystemEvent) -> None:
        heading = self._counter_heading(sample.node_id)
        name = " ".join(part for part in (sample.dimension, sample.name) if part)
        at_us = round(sample.timestamp * 1e6)
        self._write({"ph": "C", "name": name, "pid": heading, "ts": at_us, "args": {"value": sample.value}})

    def write_mark(self, sample: SystemEvent) -> None:
        heading = self._counter_heading(sample.node_id)
        known = {f"{sample.name}_{sample.dimension}_{sample.node_id}": sample.value}
        at_us = round(sample.timestamp * 1e6)
        self._write({"ph": "i", "s": "p", "name": "low GPU", "pid": heading, "tid": 0, "ts": at_us, "args": known})

    def write_trace(self, trace: Any, node: str, start_us: int, end_us: int) -> None:
        """Write the events of a trace of torch or TensorFlow that overlap a period."""
        events = trace.events
        headings: dict[int, int] = {}
        starts_ns, ends_ns = events.starts_ns, events.ends_ns
        chosen = ((ends_ns >= start_us * 1000) & (starts_ns <= end_us * 1000)).nonzero()[0]
        for row in chosen.tolist():
            track = int(events.tracks[row])
            if track not in headings:
                headings[track] = self._trace_heading(events.track_list[track], track, node)
            start_ns, duration_ns = int(starts_ns[row]), int(events.durations_ns[row])
            # Text, because a number of that many digits would be rounded.
            times = f'"ts": {start_ns // 1000}.{start_ns % 1000:03}, "dur": {duration_ns / 1000:.3f}'
            name, category = json.dumps(events.name_of(row)), events.category_texts[int(events.categories[row])]
            self._write_text(
                f'{{"ph": "X", "name": {name}, "cat": {json.dumps(category)}, "pid": {headings[track]}, '
                f'"tid": {track}, {times}}}'
            )

    def _heading(self, name: str) -> int:
        if ("slice", name) not in self._headings:
            kind = next((kind for kind in _ORDER if name.startswith(kind)), "")
            number = self._next[kind] if kind else self._others
            if kind:
                self._next[kind] += 1
            else:
                self._others += 1
            self._name_heading(("slice", name), number, name)
        return self._headings["slice", name]

    def _counter_heading(self, node: str) -> int:
        if ("counter", node) not in self._headings:
            self._name_heading(("counter", node), self._counters, f"hardware of {node}")
            self._counters += 1
        return self._headings["counter", node]

    def _trace_heading(self, track: Any, number: int, node: str) -> int:
        """Return the heading of the process of a track. The thread is named by the way."""
        title = f"{node}: {track.process_name or 'process'} {track.process}"
        if ("trace", title) not in self._headings:
            self._name_heading(("trace", title), self._traces, title)
            self._traces += 1
        heading = self._headings["trace", title]
        named = {"pid": heading, "tid": number, "args": {"name": f"{track.thread_name or 'thread'} {track.thread}"}}
        self._write({"ph": "M", "name": "thread_name", **named})
        return heading

    def _name_heading(self, key: tuple[str, str], number: int, title: str) -> None:
        self._headings[key] = number
        self._write({"ph": "M", "name": "process_name", "pid": number, "args": {"name": title}})
        self._write({"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}})

    def _thread(self, heading: int, title: str) -> int:
        """Return the number of a thread, which is named when it is first asked for."""
        numbers = self._threads.setdefault(heading, {})
        if title not in numbers:
            numbers[title] = len(numbers)
            named = {"pid": heading, "tid": numbers[title], "args": {"name": title}}
            self._write({"ph": "M", "name": "thread_name", **named})
        return numbers[title]

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._write_text(json.dumps(entry))

    def _write_text(self, text: str) -> None:
        self._file.write(text if self._is_first else f",\n{text}")
        self._is_first = False


def _source_of_traces(path: str | TrainingJob, api: Api | None) -> ByteSource | None:
    """Return the source of recorded traces; None of a job that stores nothing on S3."""
    if isinstance(path, str):
        return source_at(path, api)
    return source_at(path.profiler_s3_output_path, path.api) if path.profiler_s3_output_path else None
