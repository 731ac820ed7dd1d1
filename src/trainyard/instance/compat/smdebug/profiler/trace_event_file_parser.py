"""An import path of smdebug."""

from trainyard._sdk.profiling.events import ProcessInfo, TraceEvent

__all__ = ["ProcessInfo", "TraceEvent"]
