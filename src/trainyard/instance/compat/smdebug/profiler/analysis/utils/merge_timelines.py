"""An import path of smdebug."""

from trainyard._sdk.profiling.merged_timeline import MergedTimeline, MergeUnit

__all__ = ["MergeUnit", "MergedTimeline"]
