"""The numbers that are computed from a tensor: statistics and reductions, histograms, probes."""
