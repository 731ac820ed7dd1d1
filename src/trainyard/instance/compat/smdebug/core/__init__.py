"""The values that hooks, trials and rules share, at the paths from which scripts import them."""
