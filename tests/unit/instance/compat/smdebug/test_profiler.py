"""The import paths of smdebug.profiler, by which notebooks find what the SDK has."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import trainyard.profiler
from trainyard.engines.local.code import ensure_agent_code

# As notebooks import them.
PATHS = {
    "profiler": ("LocalAlgorithmMetricsReader", "S3AlgorithmMetricsReader", "LocalSystemMetricsReader", "TraceEvent"),
    "profiler.algorithm_metrics_reader": ("LocalAlgorithmMetricsReader", "S3AlgorithmMetricsReader"),
    "profiler.system_metrics_reader": ("LocalSystemMetricsReader", "S3SystemMetricsReader"),
    "profiler.analysis.notebook_utils": ("TrainingJob", "StepHistogram", "MetricsHistogram"),
    "profiler.analysis.notebook_utils.training_job": ("TrainingJob",),
    "profiler.analysis.notebook_utils.timeline_charts": ("TimelineCharts",),
    "profiler.analysis.notebook_utils.heatmap": ("Heatmap",),
    "profiler.analysis.notebook_utils.step_timeline_chart": ("StepTimelineChart",),
    "profiler.analysis.notebook_utils.step_histogram": ("StepHistogram",),
    "profiler.analysis.notebook_utils.metrics_histogram": ("MetricsHistogram",),
    "profiler.analysis.utils.merge_timelines": ("MergedTimeline", "MergeUnit"),
    "profiler.analysis.utils.profiler_data_to_pandas": ("PandasFrame",),
    "profiler.analysis.utils.pandas_data_analysis": ("PandasFrameAnalysis", "StatsBy", "Resource"),
    "profiler.analysis.utils.pytorch_dataloader_analysis": ("PT_dataloader_analysis",),
    "profiler.analysis.utils.python_profile_analysis_utils": ("Metrics", "StepPhase"),
    "profiler.analysis.python_profile_analysis": ("cProfileAnalysis", "PyinstrumentAnalysis"),
    "profiler.python_profile_utils": ("PythonProfileModes", "StepPhase"),
    "profiler.utils": ("TimeUnits",),
}


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in PATHS.items() for name in names])
def test_a_name_is_found_where_notebooks_look_for_it(path: str, name: str) -> None:
    assert getattr(import_module(f"smdebug.{path}"), name) is getattr(trainyard.profiler, name)


def test_constants_and_times_are_those_of_aws() -> None:
    constants, utils = import_module("smdebug.profiler.profiler_constants"), import_module("smdebug.profiler.utils")
    assert constants.MERGEDTIMELINE_SUFFIX == "merged_timeline.json"
    assert constants.CONVERT_TO_MICROSECS == 1_000_000
    assert utils.us_since_epoch_to_human_readable_time(1_700_000_000_123_456) == "2023-11-14T22:13:20:123456"
    seconds = utils.TimeUnits.SECONDS
    assert utils.convert_utc_timestamp_to_nanoseconds(1.5, seconds) == 1_500_000_000
    assert utils.convert_utc_timestamp_to_microseconds(1.5, seconds) == 1_500_000
    assert utils.convert_utc_timestamp_to_seconds(2_500_000) == 2


def test_a_job_which_has_no_sdk_says_where_profiles_are_read(tmp_path: Path) -> None:
    code = ensure_agent_code(tmp_path).folder
    script = "try: import smdebug.profiler\nexcept ImportError as error: print(error)"
    path = os.pathsep.join([str(code / "trainyard" / "instance" / "compat"), str(code)])
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    assert "not available in jobs" in run.stdout
