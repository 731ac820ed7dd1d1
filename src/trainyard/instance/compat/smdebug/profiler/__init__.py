"""Unsupported: the profiler."""

raise ImportError(
    "smdebug.profiler is not available: this version of Trainyard has the debugger (hooks, trials and rules), but not "
    "yet the profiler.",
    name=__name__,
)
