"""Reduces each tensor of a step to a few numbers, reading it once."""
