"""The profiler of a training job."""
