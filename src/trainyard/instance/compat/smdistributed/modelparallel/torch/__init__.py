"""The interface of SageMaker's model parallel library for PyTorch, over torch.distributed.

Stages of a model run by torch.distributed.pipelining, split layers by torch.distributed.tensor. The ranks come from the
environment, as torchrun, Open MPI or Hydra set it; a process without any is alone.
"""

from typing import Any

from . import amp, nn
from .checkpoints import load, resume_from_checkpoint, save, save_checkpoint
from .communication import (
    CommGroup,
    RankType,
    allgather,
    barrier,
    broadcast,
    dp_barrier,
    get_dp_group,
    get_dp_process_group,
    get_mp_group,
    get_mp_process_group,
    get_pp_process_group,
    get_rdp_process_group,
    get_tp_process_group,
    get_world_process_group,
    mp_barrier,
    pp_barrier,
    rdp_barrier,
    recv_from,
    send,
    tp_barrier,
)
from .marks import (
    delay_param_initialization,
    model_creation,
    partition,
    set_partition,
    set_tensor_parallelism,
    tensor_parallelism,
)
from .model import DistributedModel, forget_model
from .optimizer import DistributedOptimizer
from .output import StepOutput
from .step import step
from .world import (
    dp_rank,
    dp_size,
    init,
    instance_id,
    is_initialized,
    local_rank,
    local_size,
    mp_rank,
    mp_size,
    num_microbatches,
    pp_rank,
    pp_size,
    rank,
    rdp_rank,
    rdp_size,
    size,
    tp_rank,
    tp_size,
)
from .world import shutdown as leave

WORLD, MP_GROUP, DP_GROUP = CommGroup.WORLD, CommGroup.MP_GROUP, CommGroup.DP_GROUP
PP_GROUP, TP_GROUP, RDP_GROUP = CommGroup.PP_GROUP, CommGroup.TP_GROUP, CommGroup.RDP_GROUP

__all__ = [
    "DP_GROUP",
    "MP_GROUP",
    "PP_GROUP",
    "RDP_GROUP",
    "TP_GROUP",
    "WORLD",
    "CommGroup",
    "DistributedModel",
    "DistributedOptimizer",
    "RankType",
    "StepOutput",
    "allgather",
    "amp",
    "barrier",
    "broadcast",
    "delay_param_initialization",
    "dp_barrier",
    "dp_rank",
    "dp_size",
    "get_dp_group",
    "get_dp_process_group",
    "get_mp_group",
    "get_mp_process_group",
    "get_pp_process_group",
    "get_rdp_process_group",
    "get_tp_process_group",
    "get_world_process_group",
    "init",
    "instance_id",
    "is_initialized",
    "is_tracing",
    "load",
    "local_rank",
    "local_size",
    "model_creation",
    "mp_barrier",
    "mp_rank",
    "mp_size",
    "nn",
    "num_microbatches",
    "partition",
    "pp_barrier",
    "pp_rank",
    "pp_size",
    "rank",
    "rdp_barrier",
    "rdp_rank",
    "rdp_size",
    "recv_from",
    "resume_from_checkpoint",
    "save",
    "save_checkpoint",
    "send",
    "set_partition",
    "set_tensor_parallelism",
    "shutdown",
    "size",
    "step",
    "tensor_parallelism",
    "tp_barrier",
    "tp_rank",
    "tp_size",
]


def is_tracing() -> bool:
    """Models are traced without running them, so no code of theirs sees this."""
    return False


def shutdown() -> None:
    """Leave the other ranks; `init` may be called again afterwards, for another model."""
    forget_model()
    leave()


_NOT_SERVED = {
    "from_hf": "transformers of Hugging Face have no split layers of their own; mark theirs with tensor_parallelism",
    "tp_register": "split layers are nn.Linear and nn.Embedding; mark them with smp.set_tensor_parallelism",
    "tp_register_with_module": "split layers are nn.Linear and nn.Embedding; mark them with smp.set_tensor_parallelism",
    "set_activation_checkpointing": "use torch.utils.checkpoint in the module",
    "checkpoint": "use torch.utils.checkpoint in the module",
    "checkpoint_sequential": "use torch.utils.checkpoint in the module",
    "fp16": "use torch.autocast around the model",
    "optimizers": "use those of torch.optim",
    "state": "ranks and sizes are functions of smp",
}


def __getattr__(name: str) -> Any:
    if name in _NOT_SERVED:
        raise AttributeError(f"smp.{name} is not served by Trainyard's stand-in: {_NOT_SERVED[name]}.")
    raise AttributeError(f"smp has no {name} in Trainyard's stand-in; it has {', '.join(__all__)}.")
