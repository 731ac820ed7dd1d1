"""One function for each kind of bottleneck. It returns the bottleneck with its evidence, or None.

A detector gives the share of the step that its cause takes, and the most that the job gains without it; which cause is
named first is decided in `judge.py`.
"""
