"""The profile of a job, from S3 or from the yard."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit._sdk.profiling.recorded_profile import END_US, FIRST_STEP_US, START_US, STEPS
from tests.unit._sdk.profiling.test_readers import StoredFolder
from tests.unit.recording import RecordingApi
from trainyard.foundation.errors import Unavailable
from trainyard.profiler import PandasFrame, StepHistogram, StepTimelineChart, TimelineCharts, TrainingJob
from trainyard.session import Session

AT_US = [START_US, START_US + 1_000_000]
HARDWARE: list[dict[str, Any]] = [
    {"metric": "cpu_percent", "device": "core0", "values": [10.0, 20.0]},
    {"metric": "cpu_percent", "device": "core1", "values": [30.0, 40.0]},
    {"metric": "cpu_percent", "device": "total", "values": [20.0, 30.0]},
    {"metric": "memory_percent", "device": "", "values": [5.0, 6.0]},
    {"metric": "gpu_power_watts", "device": "gpu0", "values": [70.0, 80.0]},
    {"metric": "of_a_later_version", "device": "", "values": [1.0, 2.0]},
]
NUMBERS: dict[str, Any] = {"numbers": [0, 1], "counts": [1, 4], "modes": ["TRAIN", "EVAL"]}
ROWS: dict[str, Any] = {
    **NUMBERS,
    "started_us": [FIRST_STEP_US, FIRST_STEP_US + 100],
    "ended_us": [FIRST_STEP_US + 100, FIRST_STEP_US + 500],
}
PHASES = {"phases_ns": {"data_wait": [40_000, 0], "forward": [60_000, 400_000]}}


def hardware(params: dict[str, Any]) -> dict[str, Any]:
    first = params.get("StartTime", datetime.fromtimestamp(0, UTC)).timestamp() * 1e6
    chosen = [number for number, at_us in enumerate(AT_US) if at_us >= first]
    lines = [
        {**line, "instance": "algo-1", "attempt": 1}
        | {"at_us": [AT_US[number] for number in chosen], "values": [line["values"][number] for number in chosen]}
        for line in HARDWARE
    ]
    return {"Lines": [*(lines if chosen else []), {}]}


def steps(params: dict[str, Any]) -> dict[str, Any]:
    labels = {"instance": "algo-1", "attempt": 1, "worker": "worker_0"}
    last = -params.get("MaxRows", 2)
    rows = {name: values[last:] for name, values in ROWS.items()}
    phases = {name: values[last:] for name, values in PHASES["phases_ns"].items()}
    return {"Lines": [{**labels, **rows, "phases_ns": phases}, {**labels, "facts": {}}, {}]}


def job(api: RecordingApi, **described: Any) -> TrainingJob:
    described = {"TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"} | described
    api.answers["DescribeTrainingJob"] = described
    return TrainingJob("job", "us-east-1", sagemaker_session=Session(api=api), pause=lambda _: None)


def test_a_job_that_stores_its_profile_is_read_from_s3(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api = StoredFolder(recorded)
    api.answers["ReadSteps"] = {"Lines": [{}]}
    described = job(api, ProfilerConfig={"S3OutputPath": "s3://b/"})
    assert described.profiler_s3_output_path == "s3://b/job/profiler-output"
    described.wait_for_sys_profiling_data_to_be_available()
    described.wait_for_framework_profiling_data_to_be_available()
    said = capsys.readouterr().out
    assert "s3 path:s3://b/job/profiler-output" in said
    assert "Profiler data from framework is available" in said
    assert len(described.get_systems_metrics_reader().get_events(0, END_US)) == 2400
    assert len(PandasFrame(described).get_all_framework_metrics()) == 3 * STEPS


def test_a_job_that_stores_nothing_is_read_from_the_yard() -> None:
    described = job(RecordingApi(ReadHardware=hardware, ReadSteps=steps))
    described.wait_for_sys_profiling_data_to_be_available()
    reader = described.get_systems_metrics_reader()
    assert (reader.get_timestamp_of_first_available_file(), reader.get_timestamp_of_latest_available_file()) == tuple(
        AT_US
    )
    events = reader.get_events(AT_US[0], AT_US[0])
    assert [(event.type, event.name, event.dimension, event.value) for event in events] == [
        ("cpu", "cpu0", "CPUUtilization", 10.0),
        ("cpu", "cpu1", "CPUUtilization", 30.0),
        ("memory", "MemoryUsedPercent", "", 5.0),
        ("gpu", "gpu0", "gpu_power_watts", 70.0),
        ("of", "of_a_later_version", "of_a_later_version", 1.0),
    ]
    chart = TimelineCharts(reader, None, select_dimensions=["CPU"], select_events=["total"])
    assert list(chart.system_metrics["CPUUtilization-nodeid:algo-1"]["total"].values) == [20.0, 30.0]


def test_what_was_read_of_a_running_job_is_not_read_again() -> None:
    api = RecordingApi(ReadHardware=hardware, ReadSteps=steps)
    reader = job(api).get_systems_metrics_reader()
    reader.refresh_event_file_list()
    assert len(reader.get_events(0, END_US)) == 2 * 5
    asked = [params.get("StartTime") for name, params in api.asked if name == "ReadHardware"]
    assert asked[0] is None
    assert asked[1] == datetime.fromtimestamp(AT_US[1] / 1e6, UTC)


def test_steps_of_the_yard_are_events_with_their_phases_one_after_the_other() -> None:
    reader = job(RecordingApi(ReadHardware=hardware, ReadSteps=steps)).get_framework_metrics_reader()
    found = reader.get_events(0, END_US)
    assert [(event.event_name, event.start_time - FIRST_STEP_US, event.duration) for event in found] == [
        ("Step:ModeKeys.TRAIN", 0, 100),
        ("DataLoaderIter::GetNext", 0, 40),
        ("Forward", 40, 60),
        ("Step:ModeKeys.EVAL", 100, 400),
        ("Forward", 100, 400),
    ]
    assert reader.time_of_steps(0, 1) == (FIRST_STEP_US, FIRST_STEP_US + 99)
    assert reader.get_timestamp_of_latest_available_file() == FIRST_STEP_US + 500
    assert reader.get_timestamp_of_first_available_file() == FIRST_STEP_US
    # A row of four short steps counts as four.
    histogram = StepHistogram(reader)
    histogram.plot()
    assert histogram.step_metrics["Step:ModeKeys.EVAL-nodeid:algo-1-worker_0"] == [0.1] * 4
    assert [step[1] for step in StepTimelineChart(reader).steps] == pytest.approx([0.0001, 0.0001])


def test_steps_that_were_recorded_in_detail_are_read_from_s3_and_the_others_from_the_yard(recorded: Path) -> None:
    api = StoredFolder(recorded)
    # The first row is the first of the stored steps, the second another one.
    api.answers["ReadSteps"] = steps
    reader = job(api, ProfilerConfig={"S3OutputPath": "s3://b"}).get_framework_metrics_reader()
    found = reader.get_events(0, END_US)
    assert [event.node_id for event in found].count("algo-1-77") == 3 * STEPS
    yards = [event.event_name for event in found if event.node_id == "algo-1-worker_0"]
    assert yards == ["Step:ModeKeys.EVAL", "Forward"]


def test_a_job_that_wrote_no_events_has_the_steps_that_the_yard_keeps(tmp_path: Path) -> None:
    api = StoredFolder(tmp_path)
    api.answers |= {"ReadHardware": hardware, "ReadSteps": steps}
    described = job(api, ProfilerConfig={"S3OutputPath": "s3://b"})
    described.wait_for_framework_profiling_data_to_be_available()
    assert described.get_framework_metrics_reader().get_events_by_step(0, 1)
    # Its samples could not be stored, but the yard has them too.
    described.wait_for_sys_profiling_data_to_be_available()
    assert described.get_systems_metrics_reader().get_events(0, END_US)


def test_waiting_ends_with_a_job_that_has_no_profile(capsys: pytest.CaptureFixture[str]) -> None:
    nothing: dict[str, Any] = {"Lines": [{}]}
    api = RecordingApi(ReadHardware=nothing, ReadSteps=nothing)
    described = job(api, TrainingJobStatus="InProgress", SecondaryStatus="Training")
    statuses = iter(["InProgress", "InProgress", "Failed"])
    api.answers["DescribeTrainingJob"] = lambda _: {"TrainingJobStatus": next(statuses), "SecondaryStatus": "Training"}
    with pytest.raises(Unavailable, match='"job" is Failed, and has no profiler data from the system'):
        described.wait_for_sys_profiling_data_to_be_available()
    assert capsys.readouterr().out.count("not available yet") == 1


def test_a_stream_that_breaks_off_is_an_error_not_a_short_profile() -> None:
    api = RecordingApi(ReadHardware={"Lines": []}, ReadSteps={"Lines": []})
    with pytest.raises(Unavailable, match="whole profile"):
        job(api).get_systems_metrics_reader()


def test_a_job_that_stores_nothing_has_a_timeline_too(tmp_path: Path) -> None:
    described = job(RecordingApi(ReadHardware=hardware, ReadSteps=steps))
    path = described.merge_timeline(str(tmp_path))
    kinds = [entry["ph"] for entry in json.loads(Path(path).read_text())["traceEvents"]]
    assert (kinds.count("C"), kinds.count("X")) == (10, 5)
    assert described.get_config_and_profiler_s3_output_path() == (None, None)
