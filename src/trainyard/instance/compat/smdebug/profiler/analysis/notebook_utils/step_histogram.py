"""An import path of smdebug."""

from trainyard._sdk.profiling.charts.histograms import StepHistogram

__all__ = ["StepHistogram"]
