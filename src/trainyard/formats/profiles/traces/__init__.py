"""Traces of torch.profiler as tables: a streaming reader of Chrome's trace format, and a cache of what it read."""
