"""Horovod's interface for PyTorch, over torch.distributed: gloo between CPUs, NCCL between GPUs.

The ranks come from the environment, as torchrun, Open MPI or Hydra set it; a process without any is alone.
"""

from typing import Any

from .builds import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from .compression import Compression
from .differentiable import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    reducescatter,
)
from .functions import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from .mpi_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather_async,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall_async,
    barrier,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    poll,
    reducescatter_async,
    synchronize,
)
from .optimizer import DistributedOptimizer
from .process_sets import ProcessSet, global_process_set
from .world import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "rocm_built",
    "shutdown",
    "size",
    "synchronize",
]

_NOT_SERVED = {
    "elastic": "the ranks of a training job are the same from start to end; resume from checkpoints instead",
    "SyncBatchNorm": "torch.nn.SyncBatchNorm does the same over GPUs, after hvd.init()",
    "add_process_set": "collectives are of all ranks; torch.distributed.new_group makes groups after hvd.init()",
    "remove_process_set": "collectives are of all ranks; torch.distributed.new_group makes groups after hvd.init()",
    "sparse_allreduce_async": "pass sparse_as_dense=True to DistributedOptimizer",
    "start_timeline": "torch.profiler shows collectives too",
    "stop_timeline": "torch.profiler shows collectives too",
}


def __getattr__(name: str) -> Any:
    if name in _NOT_SERVED:
        raise NotImplementedError(f"hvd.{name} is not served by Trainyard's stand-in: {_NOT_SERVED[name]}.")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
