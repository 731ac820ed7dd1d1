"""Compares training jobs: their curves, and in what they differ."""
