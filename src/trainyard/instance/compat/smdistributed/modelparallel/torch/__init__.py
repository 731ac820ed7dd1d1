"""The interface of SageMaker's model parallel library for PyTorch, over torch.distributed.

torch.distributed.pipelining runs the stages of a model, torch.distributed.tensor its split layers. Ranks are read from
the variables that torchrun, Open MPI or Hydra set. A process without them is alone.
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
from .microbatches import StepOutput
from .model import DistributedModel, forget_model
from .optimizer import DistributedOptimizer
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
from .world import shutdown as disconnect

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
    """Return False: models are traced without running them, so their code never runs in a trace."""
    return False


def shutdown() -> None:
    """Disconnect from the other ranks. `init` can be called again afterwards, for another model."""
    forget_model()
    disconnect()


_UNSUPPORTED = {
    "from_hf": "there are no split layers for Hugging Face transformers; mark theirs with tensor_parallelism",
    "tp_register": "only nn.Linear and nn.Embedding can be split; mark them by smp.set_tensor_parallelism",
    "tp_register_with_module": "only nn.Linear and nn.Embedding can be split; mark them by smp.set_tensor_parallelism",
    "set_activation_checkpointing": "use torch.utils.checkpoint in the module",
    "checkpoint": "use torch.utils.checkpoint in the module",
    "checkpoint_sequential": "use torch.utils.checkpoint in the module",
    "fp16": "use torch.autocast around the model",
    "optimizers": "use those of torch.optim",
    "state": "use the functions of smp for ranks and sizes",
}


def __getattr__(name: str) -> Any:
    if name in _UNSUPPORTED:
        raise AttributeError(f"Trainyard's smp does not support {name}: {_UNSUPPORTED[name]}.")
    raise AttributeError(f"Trainyard's smp has no {name}; it has {', '.join(__all__)}.")
