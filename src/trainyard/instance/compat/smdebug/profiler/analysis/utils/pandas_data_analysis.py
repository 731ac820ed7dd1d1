"""An import path of smdebug."""

from trainyard._sdk.profiling.frame_analysis import JobStats, PandasFrameAnalysis, Resource, StatsBy

__all__ = ["JobStats", "PandasFrameAnalysis", "Resource", "StatsBy"]
