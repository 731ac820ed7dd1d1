"""An import path of smdebug."""

from trainyard._sdk.profiling.charts.heatmaps import Heatmap

__all__ = ["Heatmap"]
