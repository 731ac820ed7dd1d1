"""Readers of a profile that the yard keeps, live and without anything on S3. They return what those of files do."""

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.profiling.events import ProcessInfo, SystemEvent, TraceEvent
from trainyard._sdk.profiling.readers import MetricsReader
from trainyard.formats.profiles.aws_series import AwsSeries, aws_series
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.foundation.errors import Unavailable

# The headings of events, by the phases of steps; the first four are those of AWS's library.
PHASE_NAMES: Mapping[str, str] = {
    "data_wait": "DataLoaderIter::GetNext",
    "host_to_device": "HostToDevice",
    "forward": "Forward",
    "backward": "Backward",
    "optimizer": "Optimizer",
    "communication": "Communication",
    "checkpoint": "Checkpoint",
    "other": "Other",
}
STEP = "Step:ModeKeys."
_FIRST_PHASE = 1000


@dataclass(slots=True)
class _RecordedSamples:
    """The samples of one series of one instance."""

    at_us: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))


class YardSystemMetricsReader(MetricsReader[SystemEvent]):
    """Reads the samples of a job's hardware from the yard. What was read once is kept.

    Args:
        api: The API client of the yard.
        job_name: Name of the job.
    """

    def __init__(self, api: Api, job_name: str) -> None:
        super().__init__()
        self._api, self._job = api, job_name
        self._samples: dict[tuple[str, AwsSeries], _RecordedSamples] = {}
        self.refresh_event_file_list()

    def refresh_event_file_list(self) -> None:
        """Read the samples that are there by now."""
        latest = self.get_timestamp_of_latest_available_file()
        since = {"StartTime": datetime.fromtimestamp(latest // 1_000_000, UTC)} if latest else {}
        known = {key: samples.at_us[-1] for key, samples in self._samples.items() if samples.at_us}
        request = {"TrainingJobName": self._job, **since}
        for line in _lines(self._api, "ReadHardware", request):
            series = _aws_words(line["metric"], line["device"])
            if series is None:
                continue
            key = line["instance"], series
            samples = self._samples.setdefault(key, _RecordedSamples())
            for at_us, value in zip(line["at_us"], line["values"], strict=True):
                # The first second is sent again.
                if at_us > known.get(key, 0):
                    samples.at_us.append(at_us)
                    samples.values.append(value)

    def get_timestamp_of_first_available_file(self) -> int:
        """Return the time of the first sample, in microseconds since 1970; 0 if there is none."""
        return min((samples.at_us[0] for samples in self._samples.values() if samples.at_us), default=0)

    def get_timestamp_of_latest_available_file(self) -> int:
        """Return the time of the last sample, in microseconds since 1970; 0 if there is none."""
        return max((samples.at_us[-1] for samples in self._samples.values() if samples.at_us), default=0)

    def iterate_events(
        self,
        start_us: int,
        end_us: int,
        file_suffixes: Sequence[str] | None = None,  # noqa: ARG002 - there are no files
    ) -> Iterator[SystemEvent]:
        """Yield the samples of a period one by one, series by series.

        Args:
            start_us: When the period begins, in microseconds since 1970.
            end_us: When it ends, inclusive.
            file_suffixes: Without effect.
        """
        if end_us >= self.get_timestamp_of_latest_available_file():
            self.refresh_event_file_list()
        for (instance, series), samples in self._samples.items():
            for at_us, value in zip(samples.at_us, samples.values, strict=True):
                if start_us <= at_us <= end_us:
                    yield SystemEvent(series.type, series.name, series.dimension, value, instance, at_us / 1e6)

    def iterate_steps(self) -> Iterator[TraceEvent]:
        """Yield the steps of the program."""
        return YardAlgorithmMetricsReader(self._api, self._job).iterate_steps()


class YardAlgorithmMetricsReader(MetricsReader[TraceEvent]):
    """Reads the steps of a job's program, divided into phases, from the yard.

    A step is one event, and so is each of its phases. The yard knows how long a phase took in a step, but not when:
    within a step, phases follow each other in the order of a training loop. Of steps that the program recorded in
    detail, the stored events take the place of these.

    Args:
        api: The API client of the yard.
        job_name: Name of the job.
        stored: The reader of stored events. Default: none.
    """

    def __init__(self, api: Api, job_name: str, stored: MetricsReader[TraceEvent] | None = None) -> None:
        super().__init__()
        self._api, self._job, self._stored = api, job_name, stored
        self._first_us = self._latest_us = 0
        self.refresh_event_file_list()

    def refresh_event_file_list(self) -> None:
        """Look up to which time there are steps."""
        if self._stored is not None:
            self._stored.refresh_event_file_list()
            self._latest_us = max(self._latest_us, self._stored.get_timestamp_of_latest_available_file())
        for line in self._rows({"MaxRows": 1}):
            self._latest_us = max(self._latest_us, *line["ended_us"])
        if not self._first_us and self._latest_us:
            first = next(self._rows({}), None)
            self._first_us = first["started_us"][0] if first else 0

    def get_timestamp_of_first_available_file(self) -> int:
        """Return when the first step began, in microseconds since 1970; 0 if there is none."""
        return self._first_us

    def get_timestamp_of_latest_available_file(self) -> int:
        """Return when the last step ended, in microseconds since 1970; 0 if there is none."""
        return self._latest_us

    def iterate_events(
        self,
        start_us: int,
        end_us: int,
        file_suffixes: Sequence[str] | None = None,  # noqa: ARG002 - there are no files
    ) -> Iterator[TraceEvent]:
        """Yield the steps of a period and their phases one by one.

        Args:
            start_us: When the period begins, in microseconds since 1970.
            end_us: When it ends. Events that overlap it are included.
            file_suffixes: Without effect.
        """
        stored_steps: set[tuple[str, int]] = set()
        for event in self._stored.iterate_events(start_us, end_us) if self._stored else ():
            if event.event_name.startswith(STEP):
                stored_steps.add((event.event_name, event.start_time))
            yield event
        for note in self._stored.notes if self._stored else ():
            self._note(note)
        for line in self._rows({}):
            is_stored = False
            for event in _step_events(line):
                # Each step comes before its phases.
                if event.event_name.startswith(STEP):
                    is_stored = (event.event_name, event.start_time) in stored_steps
                if not is_stored and event.end_time >= start_us and event.start_time <= end_us:
                    yield event

    def iterate_steps(self) -> Iterator[TraceEvent]:
        """Yield the steps without their phases."""
        for line in self._rows({}):
            yield from _step_events(line, with_phases=False)

    def _rows(self, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        request = {"TrainingJobName": self._job, **options}
        return (line for line in _lines(self._api, "ReadSteps", request) if line.get("numbers"))


def _step_events(line: Mapping[str, Any], *, with_phases: bool = True) -> Iterator[TraceEvent]:
    """Yield the events of the rows of one worker. A row may stand for several short steps."""
    node = f"{line['instance']}-{line['worker']}"
    columns = zip(line["numbers"], line["counts"], line["modes"], line["started_us"], line["ended_us"], strict=True)
    for row, (number, count, mode, started_us, ended_us) in enumerate(columns):
        name = f"{STEP}{mode}"
        arguments = {"step_num": str(number), **({"steps": count} if count > 1 else {}), "worker": line["worker"]}
        yield TraceEvent(
            started_us, name, ended_us - started_us, node, name, arguments, process_info=ProcessInfo(1, name)
        )
        began_us = float(started_us)
        for place, (phase, taken_ns) in enumerate(line["phases_ns"].items() if with_phases else ()):
            if not taken_ns[row]:
                continue
            called = PHASE_NAMES.get(phase, phase)
            duration = taken_ns[row] / 1000
            heading = ProcessInfo(_FIRST_PHASE + place, called)
            more = {"step_num": str(number), "worker": line["worker"]}
            yield TraceEvent(int(began_us), called, int(duration), node, called, more, process_info=heading)
            began_us += duration


def _aws_words(metric: str, device: str) -> AwsSeries | None:
    """Return the words for a series: those of AWS, or for what AWS does not have, words like them."""
    try:
        series = HardwareSeries(HardwareMetric(metric), device)
    except ValueError:
        return AwsSeries(metric.partition("_")[0], device or metric, metric)
    if series.device == "total":
        return None
    return aws_series(series) or AwsSeries(metric.partition("_")[0], device or metric, metric)


def _lines(api: Api, operation: str, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream. Raises Unavailable if the yard breaks off."""
    with api.stream("trainyard", operation, **request) as lines:
        for text in lines:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                break
            if not line:
                return
            yield line
    raise Unavailable("The yard stopped before it had sent the whole profile; try again.")
