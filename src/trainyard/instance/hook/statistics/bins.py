"""Histograms of arrays by the exponents of their elements."""

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.histograms import BINS, LOWEST, OCTAVES, ZERO, count

BLOCK = 65_536  # elements whose exponents stay in the cache while they are counted


def count_bins(values: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.uint32]:
    """The histogram of a flat array over the bins of formats.tensors.histograms."""
    if values.dtype != np.float32:
        return count(values)
    by_exponent = np.zeros(512, dtype=np.int64)
    for start in range(0, len(values), BLOCK):
        block = np.ascontiguousarray(values[start : start + BLOCK])
        by_exponent += np.bincount(block.view(np.uint32) >> 23, minlength=512)
    if by_exponent[[255, 511]].any():
        return count(values)  # an infinity is in a bin, a NaN in none, and their exponents are the same
    # Zero shares its exponent with the numbers too small for one, which are so rare that they may take longer.
    counts = np.zeros(BINS, dtype=np.uint32)
    np.add.at(counts, BIN_OF_EXPONENT, by_exponent)
    smallest = by_exponent[0] + by_exponent[256]
    zeros = len(values) - np.count_nonzero(values) if smallest else 0
    if smallest != zeros:
        return count(values)
    return counts


def _bins_of_exponents() -> NDArray[np.intp]:
    """The bin of each sign and exponent of a float32, which are its upper nine bits."""
    octaves = np.clip(np.arange(256) - 127 - LOWEST, 0, OCTAVES - 1)
    bins = np.concatenate([ZERO + 1 + octaves, ZERO - 1 - octaves])
    bins[[0, 256]] = ZERO
    return bins


BIN_OF_EXPONENT = _bins_of_exponents()
