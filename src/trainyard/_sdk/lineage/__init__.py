"""The way from a model back to its data, and jobs that are run again from what was recorded."""
