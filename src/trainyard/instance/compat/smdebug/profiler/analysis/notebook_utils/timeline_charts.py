"""An import path of smdebug."""

from trainyard._sdk.profiling.charts.timelines import TimelineCharts

__all__ = ["TimelineCharts"]
