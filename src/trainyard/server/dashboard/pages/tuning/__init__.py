"""The trials of a tuning job, live, and what they show."""
