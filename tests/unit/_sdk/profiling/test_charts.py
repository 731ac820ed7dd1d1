"""Charts of a profile: what they draw, and that they follow a running job."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit._sdk.profiling.recorded_profile import (
    END_US,
    EVAL_STEPS,
    FIRST_STEP_US,
    START_S,
    STEPS,
    system_lines,
    write,
    write_profile,
)
from trainyard._sdk.profiling.charts.series import Samples, extremes
from trainyard.foundation.errors import InvalidRequest
from trainyard.profiler import (
    Heatmap,
    LocalAlgorithmMetricsReader,
    LocalSystemMetricsReader,
    MetricsHistogram,
    StepHistogram,
    StepTimelineChart,
    TimelineCharts,
)

CPU, GPU = "CPUUtilization-nodeid:algo-1", "GPUUtilization-nodeid:algo-2"


@pytest.fixture
def system(recorded: Path) -> LocalSystemMetricsReader:
    return LocalSystemMetricsReader(str(recorded))


@pytest.fixture
def framework(recorded: Path) -> LocalAlgorithmMetricsReader:
    return LocalAlgorithmMetricsReader(str(recorded))


def test_timelines_are_of_the_chosen_series_and_the_total_is_their_mean(system: LocalSystemMetricsReader) -> None:
    chart = TimelineCharts(
        system, framework_metrics_reader=None, select_dimensions=["CPU", "GPU"], select_events=["total"]
    )
    assert len(chart.figures) == 4
    assert {CPU, GPU} < chart.sources.keys()
    total = chart.system_metrics[CPU]["total"]
    assert len(total) == 240
    assert set(total.values) == {50.0}
    assert list(chart.sources[CPU]["total"].data["number"]) == list(range(240))


def test_instances_can_be_drawn_as_one(system: LocalSystemMetricsReader) -> None:
    chart = TimelineCharts(system, None, select_dimensions=["GPU"], show_workers=False)
    assert list(chart.sources) == ["GPUUtilization"]


def test_a_pattern_that_is_none_is_refused(system: LocalSystemMetricsReader) -> None:
    with pytest.raises(InvalidRequest, match="regular expressions"):
        TimelineCharts(system, None, select_dimensions=["("])


def test_a_timeline_follows_a_running_job(tmp_path: Path) -> None:
    root = write_profile(tmp_path)
    reader = LocalSystemMetricsReader(str(root))
    charts: list[Any] = [
        TimelineCharts(reader, None, select_dimensions=["CPU"], select_events=["cpu0"]),
        Heatmap(reader),
    ]
    histogram = MetricsHistogram(reader)
    histogram.plot(select_dimensions=["CPU"], select_events=["cpu0"])
    later_s = START_S + 120
    write(root / f"system/incremental/{later_s}.algo-1.json", "\n".join(system_lines("algo-1", later_s, 5)))

    for chart in (*charts, histogram):
        chart.update_data(later_s * 10**6 + 10**7)

    line = charts[0].sources[CPU]["cpu0"].data
    assert len(line["at"]) == 250
    assert charts[0].figures[0].x_range.end == (later_s + 4.5) * 1e3
    assert charts[0].last_timestamp_system_metrics == later_s * 10**6 + 10**7
    assert sum(histogram.sources[CPU]["cpu0"].data["top"]) == 250
    (x, *_), (width, *_) = charts[1].source.data["x"], charts[1].source.data["dw"]
    assert x + width == pytest.approx((later_s + 4.5) * 1e3)


def test_an_update_without_samples_changes_nothing(system: LocalSystemMetricsReader) -> None:
    chart = TimelineCharts(system, None)
    before = chart.last_timestamp_system_metrics
    chart.update_data(before + 10**9)
    assert chart.last_timestamp_system_metrics == before


def test_what_the_program_did_in_the_time_of_samples_is_said(
    system: LocalSystemMetricsReader, framework: LocalAlgorithmMetricsReader, capsys: pytest.CaptureFixture[str]
) -> None:
    chart = TimelineCharts(system, framework, select_events=["total"])
    # Sample 20 is at the beginning of the first step.
    spent = chart.find_time_annotations([20, 20])
    assert spent["Step:ModeKeys.TRAIN_0"] == 400.0
    assert "Spent 400.0 ms (cumulative time) in Step:ModeKeys.TRAIN_0" in capsys.readouterr().out
    chart.plot_detailed_profiler_data([20, 24])
    loaders, others = chart.layout.children
    assert loaders.y_range.factors == ["DataLoaderIter::GetNext algo-1-77"]
    assert "Forward algo-1-77" in others.y_range.factors
    assert chart.find_time_annotations([]) == {}
    assert TimelineCharts(system, None).find_time_annotations([1]) == {}


def test_a_heat_map_has_a_row_for_each_series(system: LocalSystemMetricsReader) -> None:
    chart = Heatmap(system, select_dimensions=["CPU", "Algorithm"], select_events=["cpu", "Bytes"])
    rows = dict(zip(chart.source.data["metric"], chart.source.data["image"], strict=True))
    assert list(rows)[:2] == ["CPUUtilization-nodeid:algo-2_cpu1", "CPUUtilization-nodeid:algo-2_cpu0"]
    assert rows["CPUUtilization-nodeid:algo-1_cpu0"].shape == (1, 240)
    assert set(rows["CPUUtilization-nodeid:algo-1_cpu0"].ravel()) == {90.0}
    # Bytes become percent of the highest value.
    assert set(rows["Algorithm-nodeid:algo-2_ReceiveBytesPerSecond"].ravel()) == {100.0}


def test_histograms_count_every_sample_once(system: LocalSystemMetricsReader) -> None:
    chart = MetricsHistogram(system)
    chart.plot(select_dimensions=["GPUUtilization"], select_events=["gpu0"])
    top = chart.sources[GPU]["gpu0"].data["top"]
    assert (top[0], top[-1], sum(top)) == (120, 120, 240)
    chart.clear()
    assert chart.sources == {}


def test_a_step_histogram_counts_every_step_once(framework: LocalAlgorithmMetricsReader) -> None:
    chart = StepHistogram(framework)
    chart.plot()
    assert {name.partition("-")[0]: len(values) for name, values in chart.step_metrics.items()} == {
        "Step:ModeKeys.TRAIN": STEPS - EVAL_STEPS,
        "Step:ModeKeys.EVAL": EVAL_STEPS,
        "Forward": STEPS,
    }
    chart.update_data(END_US)
    assert len(chart.step_metrics["Forward-nodeid:algo-1-77"]) == STEPS


def test_a_step_timeline_shows_each_step(framework: LocalAlgorithmMetricsReader) -> None:
    chart = StepTimelineChart(framework, width=10)
    assert chart.steps[0] == (FIRST_STEP_US / 1e6, 0.4, 0)
    assert len(chart.source.data["x"]) == STEPS
    assert chart.plot.x_range.start == chart.source.data["x"][-10]
    chart.update_data(END_US)
    assert len(chart.steps) == STEPS


def test_a_chart_is_saved_as_a_page_that_loads_nothing(system: LocalSystemMetricsReader, tmp_path: Path) -> None:
    TimelineCharts(system, None, select_dimensions=["CPU"]).save(tmp_path / "chart.html")
    page = (tmp_path / "chart.html").read_text()
    assert "CPUUtilization-nodeid:algo-1_total" in page
    assert "<script src" not in page
    assert "<link" not in page


def test_charts_of_nothing_are_empty(tmp_path: Path) -> None:
    system, framework = LocalSystemMetricsReader(str(tmp_path)), LocalAlgorithmMetricsReader(str(tmp_path))
    assert TimelineCharts(system, framework).figures == []
    assert Heatmap(system).source.data["metric"] == []
    MetricsHistogram(system).plot()
    StepHistogram(framework).plot()
    assert StepTimelineChart(framework).steps == []


def test_a_long_series_keeps_its_extremes() -> None:
    values = np.zeros(100_000)
    values[54_321], values[77_777] = 9.0, -9.0
    drawn = extremes(Samples(np.arange(100_000.0), values), 1000)
    assert len(drawn) <= 1002
    assert {54_321, 77_777, 0, 99_999} <= set(drawn.tolist())
