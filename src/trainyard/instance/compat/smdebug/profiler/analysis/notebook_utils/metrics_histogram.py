"""An import path of smdebug."""

from trainyard._sdk.profiling.charts.histograms import MetricsHistogram

__all__ = ["MetricsHistogram"]
