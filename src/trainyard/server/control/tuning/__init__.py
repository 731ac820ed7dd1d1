"""Drives tuning jobs: chooses trials, starts them, and stops those that are not promising."""
