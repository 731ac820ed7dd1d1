"""Compression of gradients for sending."""

from typing import Any

import torch


class Compressor:
    """Compresses a tensor for sending, and decompresses it afterwards. Compressed tensors can be summed."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor to send, and a context for `decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the original tensor, except for lost precision."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors unchanged."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:  # noqa: ARG004
        return tensor


class FP16Compressor(Compressor):
    """Sends floating-point numbers in 16 bits."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if not tensor.dtype.is_floating_point:
            return tensor, tensor.dtype
        return tensor.to(torch.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


class Compression:
    """The compressors by name."""

    none = NoneCompressor
    fp16 = FP16Compressor
