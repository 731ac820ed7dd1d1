"""Reads profiles, for notebooks. It is made of the SDK, which jobs do not have."""

from importlib.util import find_spec

if find_spec("trainyard._sdk.profiling") is None:
    raise ImportError(
        "smdebug.profiler is not available in jobs; read the profile of a job in a notebook, with "
        "`pip install 'trainyard[plots,pandas]'`.",
        name=__name__,
    )

from .algorithm_metrics_reader import LocalAlgorithmMetricsReader, S3AlgorithmMetricsReader
from .metrics_reader_base import MetricsReaderBase
from .system_metrics_reader import LocalSystemMetricsReader, S3SystemMetricsReader
from .trace_event_file_parser import TraceEvent

__all__ = [
    "LocalAlgorithmMetricsReader",
    "LocalSystemMetricsReader",
    "MetricsReaderBase",
    "S3AlgorithmMetricsReader",
    "S3SystemMetricsReader",
    "TraceEvent",
]
