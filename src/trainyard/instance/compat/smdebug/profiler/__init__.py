"""Says that the profiler is not in this version."""

raise ImportError(
    "smdebug.profiler is not here: this version of Trainyard has the debugger (hooks, trials and rules), and the "
    "profiler's classes come with the profiler.",
    name=__name__,
)
