"""Verifies the profiler's advice: short trials of a job, with and without a change, and the gain that they measure."""
