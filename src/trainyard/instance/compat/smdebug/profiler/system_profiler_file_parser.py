"""An import path of smdebug."""

from trainyard._sdk.profiling.events import SystemEvent as ProfilerSystemEvent

__all__ = ["ProfilerSystemEvent"]
