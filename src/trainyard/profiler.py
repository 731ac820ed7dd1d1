"""The profiler of a training job: what is profiled, which rules read it, and what notebooks read and draw.

The classes for requests are those of `sagemaker.debugger`. Those for notebooks are in AWS's package `smdebug.profiler`,
at the paths that this module has too: both are the same.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from trainyard._sdk.profiling.configuration import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    FrameworkProfile,
    HorovodProfilingConfig,
    Profiler,
    ProfilerConfig,
    PythonProfiler,
    PythonProfilingConfig,
    SMDataParallelProfilingConfig,
    cProfileTimer,
)
from trainyard._sdk.profiling.profiler_rule import ProfilerRule

if TYPE_CHECKING:
    from trainyard._sdk.profiling.charts.heatmaps import Heatmap
    from trainyard._sdk.profiling.charts.histograms import MetricsHistogram, StepHistogram
    from trainyard._sdk.profiling.charts.step_timelines import StepTimelineChart
    from trainyard._sdk.profiling.charts.timelines import TimelineCharts
    from trainyard._sdk.profiling.events import SystemEvent, TimeUnits, TraceEvent
    from trainyard._sdk.profiling.frame_analysis import (
        PandasFrameAnalysis,
        PT_dataloader_analysis,
        Resource,
        StatsBy,
    )
    from trainyard._sdk.profiling.frames import PandasFrame
    from trainyard._sdk.profiling.merged_timeline import MergedTimeline, MergeUnit
    from trainyard._sdk.profiling.profiled_job import ProfiledJob
    from trainyard._sdk.profiling.python_profiles import (
        Metrics,
        PyinstrumentAnalysis,
        PythonProfileModes,
        StepPhase,
        cProfileAnalysis,
    )
    from trainyard._sdk.profiling.readers import (
        LocalAlgorithmMetricsReader,
        LocalSystemMetricsReader,
        S3AlgorithmMetricsReader,
        S3SystemMetricsReader,
    )
    from trainyard._sdk.profiling.training_job import TrainingJob

__all__ = [
    "DataloaderProfilingConfig",
    "DetailedProfilingConfig",
    "FrameworkProfile",
    "Heatmap",
    "HorovodProfilingConfig",
    "LocalAlgorithmMetricsReader",
    "LocalSystemMetricsReader",
    "MergeUnit",
    "MergedTimeline",
    "Metrics",
    "MetricsHistogram",
    "PT_dataloader_analysis",
    "PandasFrame",
    "PandasFrameAnalysis",
    "ProfiledJob",
    "Profiler",
    "ProfilerConfig",
    "ProfilerRule",
    "PyinstrumentAnalysis",
    "PythonProfileModes",
    "PythonProfiler",
    "PythonProfilingConfig",
    "Resource",
    "S3AlgorithmMetricsReader",
    "S3SystemMetricsReader",
    "SMDataParallelProfilingConfig",
    "StatsBy",
    "StepHistogram",
    "StepPhase",
    "StepTimelineChart",
    "SystemEvent",
    "TimeUnits",
    "TimelineCharts",
    "TraceEvent",
    "TrainingJob",
    "cProfileAnalysis",
    "cProfileTimer",
]

# Imported when first used: charts need Bokeh, and tables pandas, which few who start a job have.
_HOMES = {
    **dict.fromkeys(("SystemEvent", "TimeUnits", "TraceEvent"), "events"),
    **dict.fromkeys(("LocalAlgorithmMetricsReader", "LocalSystemMetricsReader"), "readers"),
    **dict.fromkeys(("S3AlgorithmMetricsReader", "S3SystemMetricsReader"), "readers"),
    "TrainingJob": "training_job",
    "TimelineCharts": "charts.timelines",
    "Heatmap": "charts.heatmaps",
    **dict.fromkeys(("MetricsHistogram", "StepHistogram"), "charts.histograms"),
    "StepTimelineChart": "charts.step_timelines",
    "PandasFrame": "frames",
    **dict.fromkeys(("PandasFrameAnalysis", "PT_dataloader_analysis", "Resource", "StatsBy"), "frame_analysis"),
    **dict.fromkeys(("MergeUnit", "MergedTimeline"), "merged_timeline"),
    **dict.fromkeys(("Metrics", "PythonProfileModes", "StepPhase"), "python_profiles"),
    **dict.fromkeys(("PyinstrumentAnalysis", "cProfileAnalysis"), "python_profiles"),
    "ProfiledJob": "profiled_job",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainyard.profiler' has no attribute '{name}'")
    return getattr(import_module(f"trainyard._sdk.profiling.{_HOMES[name]}"), name)
