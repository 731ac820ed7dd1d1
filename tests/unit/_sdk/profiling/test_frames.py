"""A profile as dataframes, and their statistics."""

from pathlib import Path

import pytest

from tests.unit._sdk.profiling.recorded_profile import (
    END_US,
    FIRST_STEP_US,
    START_US,
    STEP_EVERY_US,
    STEP_US,
    STEPS,
)
from trainyard.foundation.errors import InvalidRequest
from trainyard.profiler import PandasFrame, PandasFrameAnalysis, PT_dataloader_analysis, Resource, StatsBy

TRAIN, EVAL = "Step:ModeKeys.TRAIN", "Step:ModeKeys.EVAL"


@pytest.fixture(scope="module")
def frame(recorded: Path) -> PandasFrame:
    return PandasFrame(str(recorded))


@pytest.fixture(scope="module")
def analysis(frame: PandasFrame) -> PandasFrameAnalysis:
    return PandasFrameAnalysis(frame.get_all_system_metrics(), frame.get_all_framework_metrics())


def test_every_sample_and_every_event_is_a_row(frame: PandasFrame) -> None:
    samples, events = frame.get_all_system_metrics(), frame.get_all_framework_metrics()
    assert (len(samples), len(events)) == (2400, 3 * STEPS)
    first = samples.iloc[0]
    assert (first["timestamp"], first["timestamp_us"]) == ("2023-11-14T22:13:00:000000", 0)
    assert list(samples.columns)[2:] == ["value", "system_metric", "dimension", "nodeID", "type"]
    step = events.iloc[0]
    assert (step["framework_metric"], step["process"], step["step"], step["nodeID"]) == (TRAIN, TRAIN, 0, "algo-1-77")
    assert step["start_time_us"] == FIRST_STEP_US - START_US
    assert set(events[events["process"] == "Forward"]["step"]) == {-1}


def test_some_series_and_some_periods_can_be_chosen(frame: PandasFrame) -> None:
    assert set(frame.get_all_system_metrics(["cpu1"])["system_metric"]) == {"cpu1"}
    assert set(frame.get_all_framework_metrics(["Forward"])["framework_metric"]) == {"Forward-SubModuleInternal"}
    samples, events = frame.get_profiler_data_by_time(FIRST_STEP_US, FIRST_STEP_US + STEP_US)
    assert (len(samples), len(events)) == (2 * 5, 3)
    samples, events = frame.get_profiler_data_by_time(0, END_US, get_system_metrics=False)
    assert (len(samples), len(events)) == (0, 3 * STEPS)
    samples, events = frame.get_profiler_data_by_step(2, 4)
    assert list(events["step"]) == [2, 3, 4]
    assert samples["timestamp_us"].between(events["start_time_us"].min(), events["end_time_us"].max()).all()


def test_what_happened_at_a_time_or_in_a_period_is_added_up(frame: PandasFrame) -> None:
    at = "2023-11-14T22:13:10:150000"
    headings, names, phases = frame.get_framework_metrics_by_timesteps([at, "2023-11-14T22:13:11:000000"])
    assert headings == {"Forward": 1.0}
    assert names == {"Forward-SubModuleInternal": 100_000}
    assert phases == {TRAIN: 400_000}
    headings, shares = frame.get_framework_metrics_by_begin_and_end_timesteps(
        ["2023-11-14T22:13:10:000000"], ["2023-11-14T22:13:10:400000"]
    )
    assert headings == {"DataLoaderIter::GetNext": 0.3, "Forward": 1.0}
    assert shares["SingleProcessDataLoaderIter::GetNext"] == 0.3


def test_the_job_is_divided_into_initialization_loop_and_finalization(analysis: PandasFrameAnalysis) -> None:
    stats = analysis.get_job_statistics()
    assert stats["initialization"] == FIRST_STEP_US - START_US
    assert stats["training_loop_duration"] == (STEPS - 1) * STEP_EVERY_US + STEP_US
    assert sum(stats[f"{part}_%"] for part in ("initialization", "training_loop", "finalization")) == pytest.approx(100)
    assert "training_loop_start" in repr(stats)


def test_steps_are_counted_by_mode_name_and_heading(analysis: PandasFrameAnalysis) -> None:
    by_mode = analysis.get_step_statistics()
    assert list(by_mode["training_phase"]) == [EVAL, TRAIN]
    assert set(by_mode["duration_p50_us"]) == {STEP_US}
    by_heading = analysis.get_step_statistics(StatsBy.PROCESS).set_index("process")
    assert by_heading.loc["Forward", "duration_mean_us"] == 100_000
    assert by_heading.loc["DataLoaderIter::GetNext", "duration_max_us"] == 90_000
    assert "Forward-SubModuleInternal" in set(
        analysis.get_step_statistics(StatsBy.FRAMEWORK_METRICS)["framework_metric"]
    )


def test_the_use_of_the_hardware_is_summarized_per_node_and_phase(analysis: PandasFrameAnalysis) -> None:
    used = analysis.get_utilization_stats()
    assert set(used["Resource"]) == {"cpu", "gpu", "network", "memory"}
    cpu = used[used["Resource"] == "cpu"].set_index("nodeID").loc["algo-1"]
    assert (cpu["utilization_mean"], cpu["utilization_p95"]) == (50, 90)
    by_phase = analysis.get_utilization_stats(Resource.GPU, by=StatsBy.TRAINING_PHASE)
    assert {TRAIN, EVAL, f"Before {TRAIN}", f"After {EVAL}"} <= set(by_phase["Training_phase"])
    ranges = analysis.get_device_usage_stats(Resource.GPU).set_index("nodeID")
    assert (ranges.loc["algo-1", [(0, 10)]].item(), ranges.loc["algo-1", [(90, 100)]].item()) == (120, 120)


def test_modes_of_steps_divide_the_time(analysis: PandasFrameAnalysis) -> None:
    intervals = analysis.get_training_phase_intervals()
    assert list(intervals["phase"]) == [
        f"Before {TRAIN}",
        TRAIN,
        f"Between {EVAL} and {TRAIN}",
        EVAL,
        f"After {EVAL}",
    ]
    assert (intervals["end_time_us"] >= intervals["start_time_us"] - 1).all()
    assert list(analysis.get_training_phase_intervals(TRAIN)["phase"])[1] == TRAIN
    with pytest.raises(InvalidRequest, match="no steps of the phases"):
        analysis.get_training_phase_intervals("Step:ModeKeys.PREDICT")


def test_wrong_arguments_are_refused(analysis: PandasFrameAnalysis) -> None:
    wrong: list[tuple[str, dict[str, object]]] = [
        ("get_step_statistics", {"by": "process"}),
        ("get_utilization_stats", {"resource": ["cpu"]}),
        ("get_utilization_stats", {"by": "training_phase"}),
        ("get_device_usage_stats", {"utilization_ranges": [(1,)]}),
    ]
    for method, options in wrong:
        with pytest.raises(InvalidRequest):
            getattr(analysis, method)(**options)


def test_statistics_need_samples_and_steps(tmp_path: Path) -> None:
    empty = PandasFrame(str(tmp_path))
    analysis = PandasFrameAnalysis(empty.get_all_system_metrics(), empty.get_all_framework_metrics())
    with pytest.raises(InvalidRequest, match="need samples"):
        analysis.get_job_statistics()
    assert analysis.get_utilization_stats().empty


def test_waits_for_batches_of_twice_the_usual_time_are_found(
    frame: PandasFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    loaders = PT_dataloader_analysis(frame)
    far = loaders.analyze_dataloader_getnext()
    assert list(far["duration_us"]) == [90_000]
    assert loaders.analyze_batchtime() is None
    assert loaders.analyze_dataloaderWorkers() is None
    loaders.analyze_dataloaderIter_initialization()
    said = capsys.readouterr().out
    assert f"GetNext calls made during the training {STEPS}" in said
    assert "Median time spent on each batch of data = 0.5 seconds" in said
    assert "DataLoaderWorker processes are not present" in said
    window = loaders.plot_the_window(START_US, END_US, select_dimensions=["CPU"])
    assert len(window.figures) == 6
