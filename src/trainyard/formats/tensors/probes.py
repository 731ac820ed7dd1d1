"""The words of probes: numbers that rules want of a tensor beyond its statistics.

Each is one number. A hook takes it in the training process; where a raw tensor was saved, `insight` takes the same from
that. For tensors of activations the first axis is the batch, and a unit is an element of one sample.
"""

import math
from typing import Final

IDLE_UNITS: Final = "idle_units"
"""(low, high, share): the share of units of which less than `share` of the values over the batch lie in (low, high)."""

QUANTILE_RANGE: Final = "quantile_range"
"""(low, high): how far the two quantiles of the elements are apart. Of a large tensor, of a regular sample of it."""

UPDATE_RATIO: Final = "update_ratio"
"""(epsilon): the mean of |w - w before| / (|w before| + epsilon) over the elements since the step before, of a weight.
Of a large tensor, over a regular sample of it."""

UPDATE_NORM_RATIO: Final = "update_norm_ratio"
"""(): the l2 norm of the change of a weight by the last update over the l2 norm of the weight, of the same sample."""

COSINE: Final = "cosine"
"""(): the cosine of the angle between a tensor and what it was at the step before, of the same sample: of gradients,
how much of what one batch says is said by the next as well. NaN where either is zero."""

ZERO_ROWS: Final = "zero_rows"
"""(): the share of rows of a matrix that are all zero: of the gradient of an embedding, the tokens that nobody used."""

ROW_ENTROPY: Final = "row_entropy"
"""(): the mean entropy of the distributions along the last axis over the entropy of an even one: from 0 to 1."""

CHANNEL_MEAN: Final = "channel_mean"
"""(axis, channel): the mean of one of the channels that lie along `axis`; NaN where there are not so many."""

VALUE_SHARE: Final = "value_share"
"""(value): the share of elements that are equal to `value`."""

CHECKSUM: Final = "checksum"
"""(): a number that two tensors have in common only if they have the same bytes: 24 bits of a hash over a sample.
Floats of up to 32 bits count as float32, so that a bfloat16 tensor that was saved as float32 has the same."""

CHECKSUM_FACTOR: Final = -7046029254386353131  # 2**64 over the golden ratio, odd, as a signed number
"""A checksum is the upper 24 bits of the sum of bits * (2 * place + 1) * CHECKSUM_FACTOR, modulo 2**64."""

SAMPLE: Final = 4096
"""How many elements of a tensor UPDATE_RATIO, UPDATE_NORM_RATIO, COSINE and CHECKSUM look at, at most."""

QUANTILE_SAMPLE: Final = 16_384
"""How many QUANTILE_RANGE looks at."""


def sample_stride(size: int, sample: int) -> int:
    """A sample is the first element and each that follows by so many, in the order of rows."""
    return max(1, -(-size // sample))


def fewest_active(share: float, batch: int) -> int:
    """How many values of a unit over a batch must lie within the bounds of IDLE_UNITS for it not to be idle."""
    return math.ceil(share * batch - 1e-9)  # 0.07 * 100 is a little more than 7
