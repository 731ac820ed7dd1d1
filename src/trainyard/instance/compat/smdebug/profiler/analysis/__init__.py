"""What notebooks compute and draw of a profile."""
