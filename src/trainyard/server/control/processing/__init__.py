"""Drives processing jobs: what their instances run."""
