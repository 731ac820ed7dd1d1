"""Reads the captured tensors of jobs for the API, in a process of its own."""
