"""Histograms of tensors over bins that never change, so that those of parts, ranks and steps can be added up.

A bin holds the elements of one sign whose magnitude lies between two neighbouring powers of two, from 2**-48 (3.6e-15)
to 2**16 (65,536, beyond what float16 can hold). The bins lie in the order of values:

    0 … 63     below 0, the largest magnitudes first: bin 0 is -inf … -2**15
    64         exactly 0, of either sign
    65 … 128   above 0, the smallest first: bin 128 is 2**15 … inf

The bins next to zero also hold whatever is smaller than theirs, the outermost whatever is larger, infinities included.
A NaN is in no bin. A magnitude of exactly 2**e belongs to the bin that begins there.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

OCTAVES: Final = 64  # bins of each sign
LOWEST: Final = -48  # the power of two at which the bin next to zero begins
HIGHEST: Final = LOWEST + OCTAVES  # at which the outermost would end
ZERO: Final = OCTAVES
BINS: Final = 2 * OCTAVES + 1

Counts = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Neighbouring intervals and how many elements each holds, as TensorBoard shows them; `limits` are right ends."""

    limits: NDArray[np.float64]
    counts: NDArray[np.float64]


def edges() -> NDArray[np.float64]:
    """The BINS + 1 ends of the bins in ascending order. The bin of zero has half the width that there is room for."""
    above = np.exp2(np.arange(LOWEST, HIGHEST + 1, dtype=np.float64))
    above[0] /= 2  # where zero's bin ends and the next, which takes all that is smaller, is drawn to begin
    return np.concatenate([-above[::-1], above])


def count(values: NDArray[np.generic]) -> Counts:
    """The histogram of an array of numbers."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    _, exponents = np.frexp(flat)  # |x| = m * 2**e with m from 0.5 to 1
    places = np.clip(exponents - 1 - LOWEST, 0, OCTAVES - 1)
    places[np.isinf(flat)] = OCTAVES - 1
    bins = np.where(flat > 0, ZERO + 1 + places, np.where(flat < 0, ZERO - 1 - places, ZERO))
    return np.bincount(bins[~np.isnan(flat)], minlength=BINS).astype(np.uint32)


def join(histograms: NDArray[np.uint32]) -> Counts:
    """The histogram of all parts, of which each row is one; counts beyond 2**32 stay at the largest."""
    total = histograms.sum(axis=0, dtype=np.uint64)
    joined: Counts = np.minimum(total, np.iinfo(np.uint32).max).astype(np.uint32)
    return joined


def buckets(counts: Counts, low: float, high: float) -> Buckets:
    """What TensorBoard wants: from the first bin that holds something to the last, within the least and the greatest.

    `low` and `high` are the tensor's least and greatest elements, where they are known and finite; they tell how far
    the outermost bins really reach.
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
