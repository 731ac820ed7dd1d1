"""Moves tuning jobs: chooses trials, begins them, ends those that are not promising, and concludes."""
