"""What moves jobs on: one controller for each kind of job. It loads, works with no lock held, and applies."""
