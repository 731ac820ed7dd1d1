"""Commands for existing training jobs: list, describe, stop, logs, metrics, spot and resume drills."""
