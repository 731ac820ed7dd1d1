"""Concludes from the profiles of jobs: evaluates their profiler rules, judges them, and writes their reports."""
