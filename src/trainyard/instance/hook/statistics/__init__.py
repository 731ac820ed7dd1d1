"""Turns the tensors of a step into a few numbers for each, at the cost of reading them once."""
