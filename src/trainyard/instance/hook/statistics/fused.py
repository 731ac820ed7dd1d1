"""Reduces many tensors on one GPU with the Triton kernels: two launches for all tensors of a dtype."""

from dataclasses import dataclass, field

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from trainyard.instance.hook.statistics import kernels
from trainyard.instance.hook.statistics.contract import TensorGroup
from trainyard.instance.hook.statistics.ring_buffer import HISTOGRAM_ROW

DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
MAX_PLANS = 64


@dataclass(slots=True)
class KernelLaunchPlan:
    """How a set of tensors is cut into blocks, which is known before they are reduced."""

    numels: list[int]
    dtype: torch.dtype
    blocks: int
    # Of each tensor: its size, its first block and its row in the results.
    tensors: torch.Tensor
    block_tensors: torch.Tensor
    addresses: list[int] = field(default_factory=list)
    # The addresses, on the device.
    pointers: torch.Tensor | None = None
    is_aligned: bool = False


class FusedReduction:
    """Launches the kernels for tensors that are dense, not empty and of one of DTYPES."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._plans: dict[tuple[tuple[int, ...], int], KernelLaunchPlan] = {}

    def reduce(self, group: TensorGroup, *, statistics: torch.Tensor, counts: torch.Tensor | None) -> None:
        """Write the statistics of each tensor to the row of its place, and add to its histogram if there is one."""
        plan = self._plan(group) if len(group.places) > 1 else None
        if plan is not None and plan.numels == group.sizes:
            self._set_addresses(plan, group.addresses)
            self._reduce_many(plan, statistics=statistics, counts=counts)
            return
        for place, tensor in zip(group.places, group.stored, strict=True):
            self._reduce_one(place, tensor, statistics=statistics, counts=counts)

    def _plan(self, group: TensorGroup) -> KernelLaunchPlan:
        # One plan per stream: memory that a stream still reads must not be freed and reused by another.
        key = group.places, torch.cuda.current_stream(self._device).cuda_stream
        plan = self._plans.get(key)
        if plan is None or plan.dtype is not group.stored[0].dtype:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._make_plan(group)
        return plan

    def _make_plan(self, group: TensorGroup) -> KernelLaunchPlan:
        counts = -(-np.array(group.sizes) // kernels.BLOCK)
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        blocks = int(counts.sum())
        owners = np.repeat(np.arange(len(counts)), counts)
        return KernelLaunchPlan(
            numels=group.sizes,
            dtype=group.stored[0].dtype,
            blocks=blocks,
            tensors=self._send(np.stack([group.sizes, firsts, group.places], axis=1), torch.int64),
            block_tensors=self._send(owners, torch.int32),
        )

    def _set_addresses(self, plan: KernelLaunchPlan, addresses: list[int]) -> None:
        if addresses != plan.addresses:
            plan.addresses = addresses
            plan.pointers = self._send(addresses, torch.int64)
            plan.is_aligned = all(address % 16 == 0 for address in addresses)

    def _reduce_many(self, plan: KernelLaunchPlan, *, statistics: torch.Tensor, counts: torch.Tensor | None) -> None:
        partials = torch.empty((kernels.PARTIALS, plan.blocks), dtype=torch.float32, device=self._device)
        kernels.reduce_many[(plan.blocks,)](
            plan.pointers,
            plan.tensors,
            plan.block_tensors,
            partials,
            plan.blocks,
            statistics if counts is None else counts,
            DTYPE=DTYPES[plan.dtype],
            IS_ALIGNED=plan.is_aligned,
            HAS_HISTOGRAMS=counts is not None,
            BLOCK=kernels.BLOCK,
            ROW=HISTOGRAM_ROW,
            num_warps=kernels.WARPS,
        )
        kernels.merge[(len(plan.numels),)](
            partials,
            plan.blocks,
            plan.tensors,
            statistics,
            BLOCK=kernels.BLOCK,
            WIDTH=kernels.MERGED_AT_ONCE,
        )

    def _reduce_one(
        self, place: int, tensor: torch.Tensor, *, statistics: torch.Tensor, counts: torch.Tensor | None
    ) -> None:
        size = tensor.numel()
        blocks = triton.cdiv(size, kernels.BLOCK)
        partials = torch.empty((kernels.PARTIALS, blocks), dtype=torch.float32, device=self._device)
        kernels.reduce_one[(blocks,)](
            tensor,
            size,
            partials,
            blocks,
            statistics if counts is None else counts[place],
            HAS_HISTOGRAMS=counts is not None,
            BLOCK=kernels.BLOCK,
            ROW=HISTOGRAM_ROW,
            num_warps=kernels.WARPS,
        )
        kernels.merge_one[(1,)](
            partials, blocks, size, statistics[place], BLOCK=kernels.BLOCK, WIDTH=kernels.MERGED_AT_ONCE
        )

    def _send(self, values: list[int] | NDArray[np.int64], dtype: torch.dtype) -> torch.Tensor:
        # Pinned memory comes from torch's own pool, which reuses it only after the copy.
        return torch.as_tensor(values, dtype=dtype).pin_memory().to(self._device, non_blocking=True)
