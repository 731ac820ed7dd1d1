"""Files of a profile, whole ones and torn ones."""

import gzip
import json
from pathlib import Path

import pytest

from trainyard._sdk.profiling.event_files import (
    MetricsFile,
    list_event_files,
    list_system_files,
    list_traces,
    read_objects,
    read_system_events,
    read_trace_events,
)
from trainyard._sdk.profiling.events import SystemEvent
from trainyard.foundation.sources import FolderSource

ONE, TWO, THREE = ({"a": number} for number in (1, 2, 3))


def objects_in(folder: Path, data: bytes) -> tuple[list[object], list[str]]:
    (folder / "file.json").write_bytes(data)
    notes: list[str] = []
    return list(read_objects(FolderSource(folder), "file.json", notes.append)), notes


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"a":1}\n{"a":2}\n', [ONE, TWO]),
        (b'[\n{"a":1},\n{"a":2}\n]\n', [ONE, TWO]),
        (b'[{"a":1},{"a":2}]', [ONE, TWO]),
        (b'[\n {\n  "a": 1\n }\n]', [ONE]),
        (b"", []),
        (gzip.compress(b'{"a":1}\n{"a":2}', mtime=0), [ONE, TWO]),
    ],
)
def test_objects_are_read_from_lines_and_from_arrays(tmp_path: Path, data: bytes, found: list[object]) -> None:
    assert objects_in(tmp_path, data) == (found, [])


@pytest.mark.parametrize(
    ("data", "found", "note"),
    [
        (b'{"a":1}\n{"a"', [ONE], "ends within an entry"),
        (b'[{"a":1},{"a":[1,2', [ONE], "ends within an entry"),
        (b'{"a":1}\n{"a":2,\n{"a":3}\n{"a":1}\n', [ONE, THREE, ONE], "torn line"),
        (b'{"a":1}\n{"a":"\n{"a":3}\n{"a":1}\n', [ONE, THREE, ONE], "torn line"),
        (b'no sample at all\n{"a":3}\n', [THREE], "torn line"),
        (b"\x00\xff" * 100, [], "torn line"),
        (b'{"a":' * 5000, [], ""),
        (gzip.compress(json.dumps([ONE] * 1000).encode(), mtime=0)[:-30], None, ""),
        (gzip.compress(b'{"a":1}\n', mtime=0)[:8] + b"\xff" * 30, [], "not completely compressed"),
    ],
)
def test_of_a_torn_file_what_is_whole_is_read(
    tmp_path: Path, data: bytes, found: list[object] | None, note: str
) -> None:
    read, notes = objects_in(tmp_path, data)
    assert found is None or read == found
    assert all(each == ONE for each in read) or found
    assert note in " ".join(notes)


def test_an_object_over_two_blocks_is_one_object(tmp_path: Path) -> None:
    wanted = [{"a": "x" * 700_000}, {"a": "y" * 700_000}, ONE]
    lines = "\n".join(json.dumps(each) for each in wanted)
    assert objects_in(tmp_path, lines.encode()) == (wanted, [])


def test_a_file_of_one_endless_entry_is_not_loaded(tmp_path: Path) -> None:
    read, notes = objects_in(tmp_path, b'{"a":"' + b"x" * (18 << 20))
    assert (read, notes) == ([], ["file.json is not a file of events."])


def test_files_are_listed_by_their_times_and_others_are_left_out(recorded: Path) -> None:
    source = FolderSource(recorded)
    system = list_system_files(source)
    assert [file.node for file in system] == ["algo-1", "algo-2"] * 2
    assert system[0].time_us + 60_000_000 == system[-1].time_us
    events = list_event_files(source)
    assert {(file.node, file.kind) for file in events} == {("77-algo-1", "pythontimeline")}
    assert all(file.name.endswith(".pt.trace.json.gz") for file in list_traces(source))
    assert len(list_traces(source)) == 1


def test_traces_that_programs_made_themselves_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "framework/pytorch/user/algo-1/model/profile"
    folder.mkdir(parents=True)
    for name in ("algo-1_2.1795096337166300.pt.trace.json", "notes.txt"):
        (folder / name).write_text("{}")
    (file,) = list_traces(FolderSource(tmp_path))
    assert (file.node, file.time_us) == ("algo-1_2", 1795096337166300)


def test_files_outside_of_a_folder_of_an_hour_are_found_too(tmp_path: Path) -> None:
    folder = tmp_path / "system" / "incremental"
    folder.mkdir(parents=True)
    (folder / "1600000000.algo-1.json").write_text("")
    (folder / "notes.json").write_text("")
    (folder / "not-an-hour").mkdir()
    assert [file.time_us for file in list_system_files(FolderSource(tmp_path))] == [1_600_000_000_000_000]


def test_lines_that_are_no_samples_are_left_out(tmp_path: Path) -> None:
    good = {
        "Type": "cpu",
        "Name": "cpu0",
        "Dimension": "CPUUtilization",
        "Value": 5,
        "NodeId": "algo-1",
        "Timestamp": 7,
    }
    lines = [good, {**good, "Value": "much"}, {"Type": "cpu"}, {**good, "Name": None}]
    (tmp_path / "file.json").write_text("\n".join(map(json.dumps, lines)))
    notes: list[str] = []
    found = list(read_system_events(FolderSource(tmp_path), MetricsFile(0, "file.json", 0), notes.append))
    assert found == [SystemEvent("cpu", name, "CPUUtilization", 5.0, "algo-1", 7.0) for name in ("cpu0", "")]
    assert notes == ["file.json has a line that is no sample."] * 2


def test_calls_that_begin_and_end_are_spans_and_entries_that_are_none_are_left_out(tmp_path: Path) -> None:
    entries = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"start_time_since_epoch_in_micros": 1000}},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Horovod"}},
        {"ph": "B", "name": "allreduce", "pid": 1, "ts": 5, "args": {"step_num": "3"}},
        {"ph": "E", "pid": 1, "ts": 25},
        {"ph": "E", "pid": 1, "ts": 30},
        {"ph": "X", "name": "backwards", "pid": 1, "ts": 30, "dur": -5},
        {"ph": "X", "pid": 1},
        {"ph": "X", "name": "elsewhere", "pid": 9, "ts": 1, "dur": 2, "tid": 4},
    ]
    (tmp_path / "file.json").write_text(json.dumps(entries))
    notes: list[str] = []
    file = MetricsFile(0, "file.json", 0, "77-algo-1", "horovod_timeline")
    first, second = read_trace_events(FolderSource(tmp_path), file, notes.append)
    assert (first.event_name, first.start_time, first.end_time, first.step) == ("allreduce", 1005, 1025, 3)
    assert (first.event_phase, first.node_id, first.file_type) == ("Horovod", "algo-1-77", "HorovodMetrics")
    assert (second.event_phase, second.step, second.tid) == ("Unknown", None, 4)
    assert len(notes) == 3
    assert json.loads(first.to_json())["dur"] == 20
