"""An import path of smdebug."""

from trainyard._sdk.profiling.readers import MetricsReader as MetricsReaderBase

__all__ = ["MetricsReaderBase"]
