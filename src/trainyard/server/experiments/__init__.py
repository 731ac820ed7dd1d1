"""Experiments, trials and trial components: how they are stored, and the metrics of components."""
