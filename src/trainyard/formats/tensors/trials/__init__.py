"""Reads trials: steps and tensors, tables of statistics, and the comparison of two trials."""
