"""Profiles of Python functions that a job recorded."""

import json
from pathlib import Path

import pytest

from tests.unit._sdk.profiling.recorded_profile import FIRST_STEP_US, write_python_profiles
from tests.unit._sdk.profiling.test_readers import StoredFolder
from trainyard._sdk.profiling.python_profiles import Metrics, PythonProfileModes, StepPhase
from trainyard.foundation.errors import InvalidRequest
from trainyard.profiler import PyinstrumentAnalysis, cProfileAnalysis

NODE = "77-algo-1"
EARLY = "prestepzero-*-start-1000000_train-0-stepstart-2000000"
LATE = "train-10-stepend-9000000_posthookclose-*-end-9500000"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Profiles of steps 9 and 10, and of the times before the first step and after the last."""
    found = write_python_profiles(tmp_path)
    (recorded, *_) = sorted(found.rglob("python_stats"))
    for window in (EARLY, LATE):
        (found / NODE / window).mkdir()
        (found / NODE / window / "python_stats").write_bytes(recorded.read_bytes())
    return found


def calls(stats: object) -> int:
    functions = stats.function_stats_list if stats else []  # type: ignore[attr-defined]
    return sum(each.total_calls for each in functions if "sorted" in each.function_name)


def test_profiles_are_found_by_step_time_and_mode(folder: Path) -> None:
    analysis = cProfileAnalysis(str(folder))
    assert analysis.list_available_node_ids() == [NODE]
    assert calls(analysis.fetch_profile_stats_by_step(9)) == 0
    assert calls(analysis.fetch_profile_stats_by_step(9, 10)) == 1
    assert calls(analysis.fetch_profile_stats_by_step(9, 11)) == 2
    first_s = FIRST_STEP_US / 1e6
    assert calls(analysis.fetch_profile_stats_by_time(first_s, first_s + 1000)) == 2
    assert analysis.fetch_profile_stats_by_time(0, 0.5) is None
    train = PythonProfileModes.TRAIN
    assert calls(analysis.fetch_profile_stats_between_modes(train, train)) == 2
    assert calls(analysis.fetch_pre_step_zero_profile_stats()) == 1
    assert calls(analysis.fetch_post_hook_close_profile_stats()) == 1
    assert analysis.fetch_profile_stats_by_step(9, 11, end_phase=StepPhase.STEP_START, node_id="elsewhere") is None


def test_profiles_are_added_up_by_phase_of_the_job(folder: Path) -> None:
    found = cProfileAnalysis(str(folder)).fetch_profile_stats_by_job_phase()
    assert {name: calls(stats) for name, stats in found.items()} == {
        "initialization": 1,
        "finalization": 1,
        "training_loop": 2,
    }


def test_functions_are_printed_by_a_metric(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = cProfileAnalysis(str(folder)).fetch_profile_stats_by_step(9, 11)
    assert stats is not None
    stats.print_top_n_functions(Metrics.CUMULATIVE_TIME, 1)
    assert "function calls" in capsys.readouterr().out
    wrong: object = "cumtime"
    with pytest.raises(InvalidRequest, match="must be a Metrics"):
        stats.print_top_n_functions(wrong)  # type: ignore[arg-type]


def test_profiles_are_listed_as_a_table(folder: Path) -> None:
    table = cProfileAnalysis(str(folder)).list_profile_stats()
    assert list(table["start_mode"]) == ["prestepzero", "train", "train", "train"]
    assert set(table["framework"]) == {"pytorch"}


def test_a_profile_that_is_torn_or_misplaced_is_noted(folder: Path) -> None:
    (torn, *_) = sorted(folder.rglob("train-9-*/python_stats"))
    torn.write_bytes(b"\x00torn")
    (folder / NODE / "no-window").mkdir()
    (folder / NODE / "no-window" / "python_stats").write_bytes(b"")
    analysis = cProfileAnalysis(str(folder))
    assert calls(analysis.fetch_profile_stats_by_step(9, 11)) == 1
    assert any("cannot be read" in note for note in analysis.notes)
    assert any("not that of a profile" in note for note in analysis.notes)


def test_profiles_on_s3_are_downloaded(tmp_path: Path) -> None:
    root, target = tmp_path / "stored", tmp_path / "here"
    write_python_profiles(root)
    target.mkdir()
    analysis = cProfileAnalysis(str(target), "s3://b/job/profiler-output", api=StoredFolder(root))
    assert [each.start_step for each in analysis.python_profile_stats] == [9, 10]
    assert {each.framework for each in analysis.python_profile_stats} == {"pytorch"}
    assert len(list(target.rglob("python_stats/**/python_stats"))) == 2
    with pytest.raises(InvalidRequest, match="no folder"):
        cProfileAnalysis(str(tmp_path / "absent"))


def test_stacks_of_pyinstrument_are_read_with_their_pages(tmp_path: Path) -> None:
    folder = tmp_path / "pytorch" / "pyinstrument" / NODE / "train-1-stepstart-5_train-2-stepstart-6"
    folder.mkdir(parents=True)
    (folder / "python_stats.json").write_text(json.dumps({"duration": 2}))
    (folder / "python_stats.html").write_text("<html>")
    analysis = PyinstrumentAnalysis(str(tmp_path / "pytorch" / "pyinstrument"))
    found = analysis.fetch_profile_stats_by_step(1, 2)
    assert found is not None
    assert [(each.json_stats, Path(each.html_file_path).name) for each in found] == [
        ({"duration": 2}, "python_stats.html")
    ]
