"""The charts of a profile, saved as pages, in a real browser."""

from pathlib import Path

import pytest

from tests.browser.test_tuning_charts import spoken
from tests.unit._sdk.profiling.recorded_profile import write_profile
from trainyard.profiler import (
    Heatmap,
    LocalAlgorithmMetricsReader,
    LocalSystemMetricsReader,
    StepHistogram,
    StepTimelineChart,
    TimelineCharts,
)


@pytest.mark.flow
def test_every_chart_of_a_profile_is_drawn(tmp_path: Path) -> None:
    root = str(write_profile(tmp_path / "profile"))
    system, framework = LocalSystemMetricsReader(root), LocalAlgorithmMetricsReader(root)
    lines = TimelineCharts(system, framework, select_events=["total"])
    lines.save(tmp_path / "lines.html")
    lines.plot_detailed_profiler_data([20, 40])
    steps = StepHistogram(framework)
    steps.plot()
    charts = {"spans": lines, "heatmap": Heatmap(system), "steps": steps, "timeline": StepTimelineChart(framework)}
    for name, chart in charts.items():
        chart.save(tmp_path / f"{name}.html")
    for name in ("lines", *charts):
        said = spoken(tmp_path / f"{name}.html", profile=tmp_path / "browser")
        assert "document idle" in said, (name, said)
        assert "Uncaught" not in said
