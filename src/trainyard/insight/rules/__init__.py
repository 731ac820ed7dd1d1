"""Debugger rules, which check the tensors of a training and report findings."""
