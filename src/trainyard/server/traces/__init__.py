"""Reads the traces that programs wrote, for the yard: what they say in figures, and any part of their timelines."""
