"""Drives training jobs: places them, starts their instances, handles their reports, and ends them."""
