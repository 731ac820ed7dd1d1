"""An import path of smdebug."""

from trainyard._sdk.profiling.readers import LocalSystemMetricsReader, S3SystemMetricsReader, SystemMetricsReader

__all__ = ["LocalSystemMetricsReader", "S3SystemMetricsReader", "SystemMetricsReader"]
