"""Statistics and histograms with plain torch operations: on any device, without waiting for it."""

import torch

from trainyard.formats.tensors.statistics.histograms import BINS, LOWEST, OCTAVES, ZERO

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def reduce_each(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the eight statistics of each tensor, in 64 bits if the device supports them. No tensor may be empty."""
    return torch.stack([_reduce(tensor) for tensor in tensors])


def count_bins(tensor: torch.Tensor) -> torch.Tensor:
    """Return the histogram of a tensor over the bins of formats.tensors.statistics.histograms, as 64-bit counts."""
    values = widen(tensor).reshape(-1)
    exponents = torch.frexp(values).exponent - 1 - LOWEST
    octaves = exponents.clamp(0, OCTAVES - 1).long()
    octaves = torch.where(values.isinf(), OCTAVES - 1, octaves)
    bins = torch.where(values > 0, ZERO + 1 + octaves, torch.where(values < 0, ZERO - 1 - octaves, ZERO))
    # NaNs go into an extra bin, which is cut off.
    bins = torch.where(values.isnan(), BINS, bins)
    counts = torch.zeros(BINS + 1, dtype=torch.int64, device=tensor.device)
    # bincount would wait for the device, to learn the number of bins.
    return counts.scatter_add_(0, bins, torch.ones_like(bins))[:BINS]


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Convert a tensor to a floating-point type that holds all its values and supports arithmetic."""
    if tensor.dtype in (torch.float32, torch.float64):
        return tensor
    if tensor.is_floating_point():
        return tensor.float()
    return tensor.to(torch.float32 if tensor.device.type == "mps" else torch.float64)


def _reduce(tensor: torch.Tensor) -> torch.Tensor:
    values = widen(tensor).reshape(-1)
    least, greatest = torch.aminmax(values)
    # Scale to about 1, so that the squares of 1e-25 and 1e38 stay in range.
    exponent = torch.frexp(torch.maximum(least.abs(), greatest.abs())).exponent.clamp(-125, 126)
    one = torch.ones_like(least)
    scaled = values * torch.ldexp(one, -exponent)
    size = values.numel()
    magnitude = torch.linalg.vector_norm(scaled, 1) / size
    mean = scaled.sum() / size
    # Subtract the mean twice: torch.std loses digits if the mean is large.
    deviations = scaled.sub_(mean)
    rest = deviations.sum() / size
    wide = values.dtype if tensor.device.type == "mps" else torch.float64
    unit = torch.ldexp(one.to(wide), exponent)
    square = torch.linalg.vector_norm(deviations, 2).to(wide).square() / size - rest.to(wide).square()
    return torch.stack(
        [
            (mean.to(wide) + rest.nan_to_num(0.0, 0.0, 0.0)) * unit,
            square.clamp(min=0).sqrt() * unit,
            magnitude.to(wide) * unit,
            least.to(wide),
            greatest.to(wide),
            (values == 0).sum().to(wide),
            values.isnan().sum().to(wide),
            values.isinf().sum().to(wide),
        ]
    )
