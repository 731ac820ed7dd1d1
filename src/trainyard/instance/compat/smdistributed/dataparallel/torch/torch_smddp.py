"""Registers "smddp" as a back end of torch.distributed: NCCL if there are GPUs, else gloo."""

from datetime import timedelta

import torch
import torch.distributed as dist

__version__ = "2.5.0+trainyard"
NAME = "smddp"


def connect(store: dist.Store, rank: int, size: int, timeout: timedelta) -> dist.Backend:
    """Create a process group of this back end, for torch.distributed."""
    if not torch.cuda.is_available():
        return dist.ProcessGroupGloo(store, rank, size, timeout)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)


if NAME not in dist.Backend.backend_list:
    dist.Backend.register_backend(NAME, connect, devices=["cpu", "cuda"])
