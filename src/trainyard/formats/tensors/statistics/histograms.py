"""Histograms of tensors over fixed bins, so that those of parts, ranks and steps can be added up.

A bin counts the elements of one sign whose magnitude is between two consecutive powers of two, from 2**-48 (3.6e-15)
to 2**16 (65,536, more than the largest float16). The bins are in order of value:

    0 … 63     below 0, the largest magnitudes first: bin 0 is -inf … -2**15
    64         exactly 0, of either sign
    65 … 128   above 0, the smallest first: bin 128 is 2**15 … inf

The bins next to zero also count all smaller magnitudes, the outermost ones all larger magnitudes and infinities. A NaN
is in no bin. A magnitude of exactly 2**e belongs to the bin that begins there.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Bins of each sign.
OCTAVES: Final = 64
# The powers of two at which the bin next to zero begins, and at which the outermost would end.
LOWEST: Final = -48
HIGHEST: Final = LOWEST + OCTAVES
ZERO: Final = OCTAVES
BINS: Final = 2 * OCTAVES + 1

Counts = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Adjacent intervals with their counts, as TensorBoard shows them; `limits` are the right ends."""

    limits: NDArray[np.float64]
    counts: NDArray[np.float64]


def edges() -> NDArray[np.float64]:
    """Return the BINS + 1 edges of the bins in ascending order. The bin of zero gets half the gap around zero."""
    above = np.exp2(np.arange(LOWEST, HIGHEST + 1, dtype=np.float64))
    # The bin next to zero, which counts all smaller magnitudes too, begins here.
    above[0] /= 2
    return np.concatenate([-above[::-1], above])


def count(values: NDArray[np.generic]) -> Counts:
    """Return the histogram of an array of numbers."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    # |x| = m * 2**e with m from 0.5 to 1.
    _, exponents = np.frexp(flat)
    places = np.clip(exponents - 1 - LOWEST, 0, OCTAVES - 1)
    places[np.isinf(flat)] = OCTAVES - 1
    bins = np.where(flat > 0, ZERO + 1 + places, np.where(flat < 0, ZERO - 1 - places, ZERO))
    return np.bincount(bins[~np.isnan(flat)], minlength=BINS).astype(np.uint32)


def join(histograms: NDArray[np.uint32]) -> Counts:
    """Add up the histograms of parts, one per row; counts saturate at 2**32 - 1."""
    total = histograms.sum(axis=0, dtype=np.uint64)
    joined: Counts = np.minimum(total, np.iinfo(np.uint32).max).astype(np.uint32)
    return joined


def buckets(counts: Counts, low: float, high: float) -> Buckets:
    """Convert a histogram for TensorBoard, from the first bin that is not empty to the last.

    `low` and `high` are the tensor's minimum and maximum, if known and finite; they limit the outermost bins.
    """
    filled = np.flatnonzero(counts)
    if not filled.size:
        return Buckets(limits=np.zeros(1), counts=np.zeros(1))
    first, last = int(filled[0]), int(filled[-1])
    limits = edges()[first + 1 : last + 2].copy()
    if np.isfinite(high):
        limits[-1] = max(high, limits[-2]) if len(limits) > 1 else high
    empty_first = [edges()[first] if not np.isfinite(low) else min(low, limits[0])]
    return Buckets(
        limits=np.concatenate([empty_first, limits]), counts=np.concatenate([[0.0], counts[first : last + 1]])
    )
