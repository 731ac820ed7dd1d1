"""What one process writes and another reads."""
