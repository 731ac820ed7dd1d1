"""Readers of the files of a profile, in a folder and on S3."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit._sdk.profiling.recorded_profile import (
    END_US,
    FIRST_STEP_US,
    NODES,
    START_S,
    START_US,
    STEP_EVERY_US,
    STEP_US,
    STEPS,
    system_lines,
    write,
    write_profile,
)
from tests.unit.recording import RecordingApi
from trainyard.foundation.errors import InvalidRequest
from trainyard.profiler import (
    LocalAlgorithmMetricsReader,
    LocalSystemMetricsReader,
    S3AlgorithmMetricsReader,
    S3SystemMetricsReader,
    TimeUnits,
)


class StoredFolder(RecordingApi):
    """S3 with the files of a folder in the bucket "b", below "job/profiler-output/"."""

    def __init__(self, root: Path) -> None:
        files = {f"job/profiler-output/{path.relative_to(root)}": path for path in root.rglob("*") if path.is_file()}

        def listed(params: dict[str, Any]) -> dict[str, Any]:
            prefix, after = params["Prefix"], params.get("StartAfter", "")
            names = [name for name in sorted(files) if name.startswith(prefix) and name > after]
            folders = {
                prefix + name[len(prefix) :].partition("/")[0] + "/" for name in names if "/" in name[len(prefix) :]
            }
            objects = [name for name in names if "/" not in name[len(prefix) :]]
            return {
                "Contents": [{"Key": name, "Size": files[name].stat().st_size} for name in objects],
                "CommonPrefixes": [{"Prefix": folder} for folder in sorted(folders)],
            }

        def got(params: dict[str, Any]) -> dict[str, Any]:
            data, (start, _, end) = (
                files[params["Key"]].read_bytes(),
                params.get("Range", "bytes=0-")[6:].partition("-"),
            )
            return {"Body": data[int(start) : int(end) + 1] if end else data[int(start) :]}

        super().__init__(ListObjectsV2=listed, GetObject=got)


@pytest.fixture(params=["folder", "s3"])
def readers(request: pytest.FixtureRequest, recorded: Path) -> tuple[Any, Any]:
    if request.param == "folder":
        return LocalSystemMetricsReader(str(recorded)), LocalAlgorithmMetricsReader(str(recorded))
    api, uri = StoredFolder(recorded), "s3://b/job/profiler-output"
    return S3SystemMetricsReader(uri, api=api), S3AlgorithmMetricsReader(uri, api=api)


def test_samples_of_a_period_are_read_in_any_unit(readers: tuple[Any, Any]) -> None:
    system, _ = readers
    assert len(system.get_events(0, END_US)) == 2 * 2 * 120 * 5
    assert len(system.get_events(START_S + 30, START_S + 31, unit=TimeUnits.SECONDS)) == len(NODES) * 3 * 5
    gpu = system.get_events(START_US, END_US, event_type="gpu")
    assert {event.type for event in gpu} == {"gpu"}
    assert system.get_events(END_US + 10**9, END_US + 2 * 10**9) == []
    assert system.notes == []


def test_it_is_known_from_when_to_when_there_are_samples(readers: tuple[Any, Any]) -> None:
    system, framework = readers
    assert system.get_timestamp_of_first_available_file() == START_US
    assert system.get_timestamp_of_latest_available_file() == END_US
    assert framework.get_timestamp_of_latest_available_file() < END_US


def test_events_that_overlap_a_period_are_read(readers: tuple[Any, Any]) -> None:
    _, framework = readers
    assert len(framework.get_events(0, END_US)) == 3 * STEPS
    inside = framework.get_events(FIRST_STEP_US + STEP_US // 2, FIRST_STEP_US + STEP_US // 2)
    assert [event.event_name for event in inside] == ["Step:ModeKeys.TRAIN", "Forward-SubModuleInternal"]
    assert framework.get_events(0, END_US, file_suffix_filter=["model_timeline.json"]) == []


def test_what_belongs_to_steps_is_found_by_their_numbers(readers: tuple[Any, Any]) -> None:
    system, framework = readers
    assert framework.time_of_steps(1, 3) == (FIRST_STEP_US + STEP_EVERY_US, FIRST_STEP_US + 3 * STEP_EVERY_US - 1)
    assert {event.step for event in framework.get_events_by_step(1, 3)} == {1, 2, None}
    assert len(system.get_events_by_step(1, 3, event_type="cpu")) == len(NODES) * 2 * 2
    assert framework.get_events_by_step(1, 10_000) == []


def test_files_that_arrive_later_are_found_and_their_samples_are_new(tmp_path: Path) -> None:
    root = write_profile(tmp_path)
    reader = LocalSystemMetricsReader(str(root))
    later_s = START_S + 120
    write(root / f"system/incremental/{later_s}.algo-1.json", "\n".join(system_lines("algo-1", later_s, 1)))
    assert len(reader.get_events(later_s * 1e6, later_s * 1e6 + 10**7)) == 10
    assert reader.get_timestamp_of_latest_available_file() == (later_s + 60) * 10**6


def test_a_file_that_is_torn_is_noted_and_the_others_are_read(tmp_path: Path) -> None:
    root = write_profile(tmp_path)
    (path, *_) = sorted(root.rglob("*.algo-1.json"))
    path.write_text(path.read_text()[:-40] + "\n\x00\x00")
    (events, *_) = sorted(root.rglob("*pythontimeline.json"))
    events.write_text(events.read_text()[:3000])
    system, framework = LocalSystemMetricsReader(str(root)), LocalAlgorithmMetricsReader(str(root))
    assert 2390 < len(system.get_events(0, END_US)) < 2400
    assert 300 < len(framework.get_events(0, END_US)) < 400
    assert system.notes
    assert framework.notes


def test_nothing_is_read_where_nothing_is(tmp_path: Path) -> None:
    for reader in (LocalSystemMetricsReader(str(tmp_path)), LocalAlgorithmMetricsReader(str(tmp_path / "absent"))):
        assert reader.get_timestamp_of_latest_available_file() == reader.get_timestamp_of_first_available_file() == 0
        assert reader.get_events(0, END_US) == []


def test_a_location_that_is_not_on_s3_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not on S3"):
        S3SystemMetricsReader("/tmp/profile")
