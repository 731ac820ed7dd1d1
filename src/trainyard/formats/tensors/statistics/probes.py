"""The words of probes: numbers that rules need of a tensor beyond its statistics.

Each is one number. A hook computes it in the training process; if a raw tensor was saved, `insight` computes the same
from that. The first axis of an activation is the batch, and a unit is an element of one sample.
"""

import math
from typing import Final

IDLE_UNITS: Final = "idle_units"
"""(low, high, share): the share of units with less than `share` of their values over the batch within (low, high)."""

QUANTILE_RANGE: Final = "quantile_range"
"""(low, high): the distance of the two quantiles of the elements. A large tensor is sampled regularly."""

UPDATE_RATIO: Final = "update_ratio"
"""(epsilon): for a weight, the mean of |w - w before| / (|w before| + epsilon) over the elements since the last step.
A large tensor is sampled regularly."""

UPDATE_NORM_RATIO: Final = "update_norm_ratio"
"""(): the l2 norm of the last update of a weight over the l2 norm of the weight, over the same sample."""

COSINE: Final = "cosine"
"""(): the cosine similarity of a tensor and itself at the step before, over the same sample: for gradients, how far
consecutive batches agree. NaN if either is zero."""

ZERO_ROWS: Final = "zero_rows"
"""(): the share of rows of a matrix that are all zero: for the gradient of an embedding, the unused tokens."""

ROW_ENTROPY: Final = "row_entropy"
"""(): the mean entropy of the distributions along the last axis over that of a uniform one: from 0 to 1."""

CHANNEL_MEAN: Final = "channel_mean"
"""(axis, channel): the mean of one channel along `axis`; NaN if there is no such channel."""

VALUE_SHARE: Final = "value_share"
"""(value): the share of elements that are equal to `value`."""

CHECKSUM: Final = "checksum"
"""(): a 24-bit hash over a sample, equal for tensors with the same bytes.
Floats of up to 32 bits count as float32, so a bfloat16 tensor that was saved as float32 has the same checksum."""

# 2**64 over the golden ratio, made odd, as a signed number.
CHECKSUM_FACTOR: Final = -7046029254386353131
"""A checksum is the upper 24 bits of the sum of bits * (2 * place + 1) * CHECKSUM_FACTOR, modulo 2**64."""

SAMPLE: Final = 4096
"""The largest sample of UPDATE_RATIO, UPDATE_NORM_RATIO, COSINE and CHECKSUM, in elements."""

QUANTILE_SAMPLE: Final = 16_384
"""The largest sample of QUANTILE_RANGE, in elements."""


def sample_stride(size: int, sample: int) -> int:
    """Return the stride of a sample: it takes every stride-th element from the first on, in row-major order."""
    return max(1, -(-size // sample))


def fewest_active(share: float, batch: int) -> int:
    """Return how many values of a unit over a batch must be within the bounds of IDLE_UNITS to make it active."""
    # Without the margin, rounding would count too many: 0.07 * 100 is a little more than 7.
    return math.ceil(share * batch - 1e-9)
