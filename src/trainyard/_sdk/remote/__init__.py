"""Remote functions: a pickled call that a job runs."""
