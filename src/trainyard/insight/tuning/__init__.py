"""Which hyperparameters to try next, and which trials to end early: history in, suggestions out."""
