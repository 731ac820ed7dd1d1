"""An import path of smdebug."""

from trainyard._sdk.profiling.charts.step_timelines import StepTimelineChart

__all__ = ["StepTimelineChart"]
