"""The values that hooks, trials and rules share, at the paths that scripts import them from."""
