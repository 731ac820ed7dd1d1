"""Triton kernels that reduce many tensors in one launch. Importing this needs Triton; using it needs a GPU.

Each program reads one block of one tensor once; everything else happens in registers. The elements are scaled by a
power of two, so that the squares of 1e-25 and 1e38 stay in range. Deviations are taken from the block's own mean, so
that a standard deviation far smaller than the mean is still accurate. Blocks are then merged per tensor in 64 bits,
always in the same order: the same tensors give bitwise identical numbers.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# ruff: noqa: N803

import triton
import triton.language as tl

# With four warps, the fastest of nine pairs measured on an H200, for 32 and for 16 bits.
BLOCK = 4096
WARPS = 4
MERGED_AT_ONCE = 1024
# Numbers per block, one row for each, in the order of `_store_partials`.
PARTIALS = 10


@triton.jit(do_not_specialize=["blocks"])
def reduce_many(
    pointers,  # 64-bit, one per tensor
    tensors,  # three numbers per tensor: size, first block, row in `histograms`
    block_tensors,  # the tensor of each block
    partials,
    blocks,
    histograms,
    DTYPE: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    HAS_HISTOGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROW: tl.constexpr,
):
    """Compute partial results of every block of the tensors, and optionally their histograms."""
    block = tl.program_id(0)
    tensor = tl.load(block_tensors + block)
    size = tl.load(tensors + 3 * tensor)
    start = (block - tl.load(tensors + 3 * tensor + 1)) * BLOCK
    base = tl.load(pointers + tensor).to(tl.pointer_type(DTYPE))
    if IS_ALIGNED:
        base = tl.multiple_of(base, 16)
    if HAS_HISTOGRAMS:
        histograms += tl.load(tensors + 3 * tensor + 2) * ROW
    _reduce_block(base, start, size, partials + block, blocks, histograms, HAS_HISTOGRAMS, BLOCK, ROW)


@triton.jit(do_not_specialize=["size", "blocks"])
def reduce_one(
    base,
    size,
    partials,
    blocks,
    histogram,
    HAS_HISTOGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROW: tl.constexpr,
):
    """Compute partial results of every block of one tensor."""
    block = tl.program_id(0)
    start = block.to(tl.int64) * BLOCK
    _reduce_block(base, start, size, partials + block, blocks, histogram, HAS_HISTOGRAMS, BLOCK, ROW)


@triton.jit(do_not_specialize=["blocks"])
def merge(
    partials,
    blocks,
    tensors,  # as in `reduce_many`; the row applies to `results` too
    results,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Merge the blocks of each tensor into its eight statistics."""
    tensor = tl.program_id(0)
    size = tl.load(tensors + 3 * tensor)
    here = partials + tl.load(tensors + 3 * tensor + 1)
    _merge_tensor(here, blocks, size, results + tl.load(tensors + 3 * tensor + 2) * 8, BLOCK, WIDTH)


@triton.jit(do_not_specialize=["size", "blocks"])
def merge_one(partials, blocks, size, result, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Merge the blocks of one tensor into its eight statistics."""
    _merge_tensor(partials, blocks, size, result, BLOCK, WIDTH)


@triton.jit
def _reduce_block(
    base,
    start,
    size,
    partial,
    blocks,
    histogram,
    HAS_HISTOGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROW: tl.constexpr,
):
    start = tl.multiple_of(start, BLOCK)
    # Only the last block of a tensor needs a mask. The others read 16 bytes at a time without one, in half the time.
    if start + BLOCK <= size:
        _reduce_values(base, start, size, partial, blocks, histogram, False, HAS_HISTOGRAMS, BLOCK, ROW)
    else:
        _reduce_values(base, start, size, partial, blocks, histogram, True, HAS_HISTOGRAMS, BLOCK, ROW)


@triton.jit
def _reduce_values(
    base,
    start,
    size,
    partial,
    blocks,
    histogram,
    IS_MASKED: tl.constexpr,
    HAS_HISTOGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROW: tl.constexpr,
):
    base += start
    offsets = tl.arange(0, BLOCK)
    if IS_MASKED:
        inside = offsets < (size - start).to(tl.int32)
        values = tl.load(base + offsets, mask=inside, other=0.0).to(tl.float32)
        size_here = (size - start).to(tl.float32)
        low, high = tl.where(inside, values, float("inf")), tl.where(inside, values, float("-inf"))
        is_zero = (values == 0.0) & inside
    else:
        inside = offsets < BLOCK
        values = tl.load(base + offsets).to(tl.float32)
        size_here = BLOCK + 0.0
        low, high = values, values
        is_zero = values == 0.0
    least, greatest, zeros = tl.reduce((low, high, is_zero.to(tl.int32)), 0, _extremes_and_count)

    largest = tl.maximum(tl.abs(least), tl.abs(greatest))
    exponent = tl.minimum(tl.maximum((largest.to(tl.int32, bitcast=True) >> 23) & 255, 1), 253)
    scaled = values * ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    total, magnitude = tl.reduce((scaled, tl.abs(scaled)), 0, _sums)
    mean = total / size_here
    deviations = scaled - mean
    if IS_MASKED:
        deviations = tl.where(inside, deviations, 0.0)
    rest, squares = tl.reduce((deviations, deviations * deviations), 0, _sums)

    nans = zeros - zeros
    infinities = nans
    # Scaled finite numbers cannot overflow, so this means NaNs or infinities.
    if (magnitude != magnitude) | (magnitude == float("inf")):
        nans = tl.sum(((values != values) & inside).to(tl.int32), 0)
        infinities = tl.sum(((tl.abs(values) == float("inf")) & inside).to(tl.int32), 0)
    _store_partials(partial, blocks, mean, rest, squares, magnitude, exponent, least, greatest, zeros, nans, infinities)
    if HAS_HISTOGRAMS:
        _count_bins(values, inside & (values == values), histogram, ROW)


@triton.jit
def _store_partials(
    partial, blocks, mean, rest, squares, magnitude, exponent, least, greatest, zeros, nans, infinities
):
    tl.store(partial, mean)
    tl.store(partial + blocks, rest)
    tl.store(partial + 2 * blocks, squares)
    tl.store(partial + 3 * blocks, magnitude)
    tl.store(partial + 4 * blocks, (exponent << 23).to(tl.float32, bitcast=True))  # unit of the four above
    tl.store(partial + 5 * blocks, least)
    tl.store(partial + 6 * blocks, greatest)
    tl.store(partial + 7 * blocks, zeros.to(tl.float32))
    tl.store(partial + 8 * blocks, nans.to(tl.float32))
    tl.store(partial + 9 * blocks, infinities.to(tl.float32))


@triton.jit
def _count_bins(values, is_counted, histogram, ROW: tl.constexpr):
    """Add the block's counts to a histogram of 129 bins (formats.tensors.statistics.histograms), padded to ROW."""
    exponents = (values.to(tl.int32, bitcast=True) >> 23) & 255
    octaves = tl.minimum(tl.maximum(exponents - (127 - 48), 0), 63)
    bins = tl.where(values > 0.0, 65 + octaves, tl.where(values < 0.0, 63 - octaves, 64))
    counts = tl.histogram(tl.where(is_counted, bins, ROW - 1), ROW)
    places = tl.arange(0, ROW)
    tl.atomic_add(histogram + places, counts, mask=(places < 129) & (counts > 0), sem="relaxed")


@triton.jit
def _merge_tensor(partials, blocks, size, result, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    wide_size = size.to(tl.float64)
    total, magnitude, least, greatest, zeros, nans, infinities = _merge_sums(partials, blocks, size, BLOCK, WIDTH)
    mean = total / wide_size
    square = _merge_squares(partials, blocks, size, mean, BLOCK, WIDTH) / wide_size
    std = tl.sqrt(tl.where(square > 0.0, square, 0.0))
    _store_statistics(result, mean, std, magnitude / wide_size, least, greatest, zeros, nans, infinities)


@triton.jit
def _merge_sums(partials, blocks, size, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Merge in one pass over a tensor's blocks: sums, extremes and counts."""
    totals = tl.zeros((WIDTH,), tl.float64)
    magnitudes = tl.zeros((WIDTH,), tl.float64)
    least = tl.full((WIDTH,), float("inf"), tl.float32)
    greatest = tl.full((WIDTH,), float("-inf"), tl.float32)
    zeros = tl.zeros((WIDTH,), tl.float64)
    nans = tl.zeros((WIDTH,), tl.float64)
    infinities = tl.zeros((WIDTH,), tl.float64)
    for first in range(0, tl.cdiv(size, BLOCK), WIDTH):
        here, inside, sizes, unit, mean = _blocks_from(partials, blocks, size, first, BLOCK, WIDTH)
        totals += (mean * sizes + _wide(here + blocks, inside)) * unit
        magnitudes += _wide(here + 3 * blocks, inside) * unit
        least = tl.minimum(least, tl.load(here + 5 * blocks, mask=inside, other=float("inf")))
        greatest = tl.maximum(greatest, tl.load(here + 6 * blocks, mask=inside, other=float("-inf")))
        zeros += _wide(here + 7 * blocks, inside)
        nans += _wide(here + 8 * blocks, inside)
        infinities += _wide(here + 9 * blocks, inside)
    return (
        tl.sum(totals, 0),
        tl.sum(magnitudes, 0),
        tl.min(least, 0).to(tl.float64),
        tl.max(greatest, 0).to(tl.float64),
        tl.sum(zeros, 0),
        tl.sum(nans, 0),
        tl.sum(infinities, 0),
    )


@triton.jit
def _merge_squares(partials, blocks, size, mean_of_all, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Return the sum of squared deviations from a tensor's mean."""
    squares = tl.zeros((WIDTH,), tl.float64)
    for first in range(0, tl.cdiv(size, BLOCK), WIDTH):
        here, inside, sizes, unit, mean = _blocks_from(partials, blocks, size, first, BLOCK, WIDTH)
        # How far the mean of this block, from which its squares were taken, is from the tensor's mean.
        deviation = mean * unit - mean_of_all
        squared = _wide(here + 2 * blocks, inside) * unit * unit
        squared += deviation * (2.0 * _wide(here + blocks, inside) * unit + sizes * deviation)
        squares += tl.where(inside, squared, 0.0)
    return tl.sum(squares, 0)


@triton.jit
def _blocks_from(partials, blocks, size, first, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Load some blocks of a tensor: their addresses, which of them exist, and their sizes, units and means."""
    places = first + tl.arange(0, WIDTH)
    here, inside = partials + places, places < tl.cdiv(size, BLOCK)
    sizes = tl.minimum(size - places.to(tl.int64) * BLOCK, BLOCK).to(tl.float64)
    return here, inside, sizes, _wide(here + 4 * blocks, inside), _wide(here, inside)


@triton.jit
def _wide(places, inside):
    return tl.load(places, mask=inside, other=0.0).to(tl.float64)


@triton.jit
def _store_statistics(result, mean, std, mean_magnitude, least, greatest, zeros, nans, infinities):
    """Write the columns in order, corrected for NaNs and infinities, which the sums ignore."""
    nan = float("nan")
    has_nan = nans > 0.0
    has_infinity = infinities > 0.0
    infinite_mean = tl.where(
        greatest == float("inf"), tl.where(least == float("-inf"), nan, float("inf")), float("-inf")
    )
    mean = tl.where(has_infinity, infinite_mean, mean)
    tl.store(result, tl.where(has_nan, nan, mean))
    tl.store(result + 1, tl.where(has_nan | has_infinity, nan, std))
    tl.store(result + 2, tl.where(has_nan, nan, tl.where(has_infinity, float("inf"), mean_magnitude)))
    tl.store(result + 3, tl.where(has_nan, nan, least))
    tl.store(result + 4, tl.where(has_nan, nan, greatest))
    tl.store(result + 5, zeros)
    tl.store(result + 6, nans)
    tl.store(result + 7, infinities)


@triton.jit
def _extremes_and_count(least, greatest, count, other_least, other_greatest, other_count):
    return tl.minimum(least, other_least), tl.maximum(greatest, other_greatest), count + other_count


@triton.jit
def _sums(first, second, other_first, other_second):
    return first + other_first, second + other_second
