"""The words of probes: numbers that rules want of a tensor beyond its statistics.

Each is one number. A hook takes it in the training process; where a raw tensor was saved, `insight` takes the same from
that. For tensors of activations the first axis is the batch, and a unit is an element of one sample.
"""

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

ZERO_ROWS: Final = "zero_rows"
"""(): the share of rows of a matrix that are all zero: of the gradient of an embedding, the tokens that nobody used."""

ROW_ENTROPY: Final = "row_entropy"
"""(): the mean entropy of the distributions along the last axis over the entropy of an even one: from 0 to 1."""

CHANNEL_MEAN: Final = "channel_mean"
"""(axis): the mean of the channel whose mean is furthest from 0, of a batch whose channels lie along `axis`."""

VALUE_SHARE: Final = "value_share"
"""(value): the share of elements that are equal to `value`."""

CHECKSUM: Final = "checksum"
"""(): a number that two tensors have in common only if they have the same bytes: 24 bits of a hash over a sample."""
