"""Commands of the profiler: where the time of a job goes, what to change, and what that gains."""
