"""Where instances run: what a machine offers, and who starts what on it."""
