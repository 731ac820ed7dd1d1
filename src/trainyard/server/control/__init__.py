"""Drives jobs: one controller for every kind, the scheduler that all kinds share, and a folder for each kind."""
