"""Tables of a profile, their statistics, and its timeline."""
