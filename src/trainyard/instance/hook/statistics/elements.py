"""The elements of a tensor that this process holds, as one dense tensor that can be reduced."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Statistic

PLAIN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))
PLAIN_DTYPES = frozenset(
    (
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
)


@dataclass(frozen=True, slots=True)
class Elements:
    """The stored elements of a tensor, and how many zeros a sparse one has beyond them."""

    stored: torch.Tensor
    hidden_zeros: int = 0


def obstacle(tensor: torch.Tensor) -> str:
    """Return why a tensor cannot have statistics, or an empty string if it can."""
    if tensor.is_complex():
        return "its elements are complex numbers"
    if tensor.is_quantized:
        return "it is quantized"
    if tensor.is_meta:
        return "it has a shape but no elements"
    return ""


def elements(tensor: torch.Tensor) -> Elements | None:
    """Return the elements of a tensor, without a copy if it is dense, or None if it cannot be reduced."""
    if type(tensor) not in PLAIN_TYPES and hasattr(tensor, "to_local"):
        # The local part of a DTensor: reading all of it would be a collective operation.
        tensor = tensor.to_local()
    if obstacle(tensor):
        return None
    tensor = tensor.detach()
    if tensor.layout is torch.strided:
        return Elements(tensor)
    whole = tensor.numel()
    if tensor.layout is torch.sparse_coo:
        # An index that occurs twice means the sum of both values.
        tensor = tensor.coalesce()
    stored = tensor.values()
    return Elements(stored, hidden_zeros=whole - stored.numel())


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one range of memory, in any order, each once."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def add_zeros(row: NDArray[np.float64], stored: int, *, zeros: int) -> None:
    """Update the statistics of the stored elements, in place, for a tensor with `zeros` more zeros."""
    share = stored / (stored + zeros)
    if not stored:
        row[:] = 0.0
        row[Statistic.ZEROS] = zeros
        return
    mean = row[Statistic.MEAN]
    row[Statistic.STD] = np.sqrt(share * (row[Statistic.STD] ** 2 + (1 - share) * mean**2))
    row[Statistic.MEAN] *= share
    row[Statistic.MEAN_ABS] *= share
    row[Statistic.MIN] = np.minimum(row[Statistic.MIN], 0.0)
    row[Statistic.MAX] = np.maximum(row[Statistic.MAX], 0.0)
    row[Statistic.ZEROS] += zeros
