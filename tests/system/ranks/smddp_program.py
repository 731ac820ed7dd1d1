"""What ranks do with smdistributed.dataparallel, in its newer and in its older form."""

import os
from typing import Any

import smdistributed.dataparallel
import smdistributed.dataparallel.torch.distributed as smddp
import smdistributed.dataparallel.torch.torch_smddp  # makes the back end known
import torch
import torch.distributed as dist
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel


def main() -> dict[str, Any]:
    return {"backend": newer(), "older": older(), "version": smdistributed.dataparallel.__version__}


def newer() -> dict[str, Any]:
    dist.init_process_group(backend="smddp")
    found = {"name": dist.get_backend(), "gradient": _gradient(torch.nn.parallel.DistributedDataParallel)}
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, dist.get_rank())
    dist.barrier()
    dist.destroy_process_group()
    return found | {"everyone": everyone}


def older() -> dict[str, Any]:
    os.environ["MASTER_PORT"] = os.environ["OTHER_PORT"]  # rank 0 may not have left the first one yet
    smddp.init_process_group()
    total = torch.tensor([smddp.get_rank() + 1.0])
    smddp.all_reduce(total)
    from_last = torch.tensor([smddp.get_rank()])
    smddp.broadcast(from_last, 2)
    found = {
        "is available": smddp.is_available(),
        "place": [smddp.get_rank(), smddp.get_world_size(), smddp.get_local_rank(), smddp.get_local_size()],
        "total": total.item(),
        "from last": from_last.item(),
        "gradient": _gradient(DistributedDataParallel),
    }
    smddp.barrier()
    smddp.destroy_process_group()
    return found


def _gradient(wrapper: Any) -> list[float]:
    """Of a model that each rank gave other inputs."""
    model = wrapper(torch.nn.Linear(2, 1, bias=False))
    model(torch.full((1, 2), float(dist.get_rank()))).sum().backward()
    return [float(value) for value in model.module.weight.grad.flatten()]
