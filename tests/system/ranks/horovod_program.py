"""What ranks do with horovod.torch, and what comes out of it; those "by one" do the same in a single process."""

import warnings
from collections.abc import Callable
from typing import Any

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn.functional import mse_loss

STEPS = 4
ROWS = 12  # of a global batch


def main() -> dict[str, Any]:
    hvd.init()
    found = {name: each() for name, each in SCENARIOS.items()}
    hvd.shutdown()
    found["is_initialized_after_shutdown"] = hvd.is_initialized()
    return found


def place() -> dict[str, int]:
    return {
        name: getattr(hvd, name)() for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    }


def trained() -> Any:
    """The script of the documentation: state that only rank 0 has, brought to all; then a third of each batch."""
    torch.manual_seed(hvd.rank())
    net = _net()
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    if hvd.rank() == 0:
        torch.manual_seed(0)
        _train(net, optimizer, batches=_batches(seed=5))
        optimizer.param_groups[0]["lr"] = 0.05
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    _train(net, optimizer, batches=_mine(_batches(seed=6)))
    return _weights(net)


def trained_by_one() -> Any:
    torch.manual_seed(0)
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(0)
    _train(net, optimizer, batches=_batches(seed=5))
    optimizer.param_groups[0]["lr"] = 0.05
    _train(net, optimizer, batches=_batches(seed=6))
    return _weights(net)


def trained_with(**options: Any) -> Callable[[], Any]:
    def train() -> Any:
        net = _same_net()
        optimizer = hvd.DistributedOptimizer(torch.optim.Adam(net.parameters(), lr=0.01), **options)
        _train(net, optimizer, batches=_mine(_batches(seed=6)))
        return _weights(net)

    return train


def trained_with_adam_by_one() -> Any:
    net = _same_net()
    _train(net, torch.optim.Adam(net.parameters(), lr=0.01), batches=_batches(seed=6))
    return _weights(net)


def accumulated() -> Any:
    """Two backward passes for each step, with half of the batch in each."""
    net = _same_net()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(net.parameters(), lr=0.01), backward_passes_per_step=2)
    for rows, targets in _mine(_batches(seed=6)):
        optimizer.zero_grad()
        for part, wanted in zip(rows.split(2), targets.split(2), strict=True):
            (mse_loss(net(part), wanted) / 2).backward()
        optimizer.step()
    return _weights(net)


def clipped() -> Any:
    """Gradients of all ranks are there between synchronize and step."""
    net = _same_net()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
    for rows, targets in _mine(_batches(seed=6)):
        optimizer.zero_grad()
        mse_loss(net(rows), targets).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
    return _weights(net)


def clipped_by_one() -> Any:
    net = _same_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for rows, targets in _batches(seed=6):
        optimizer.zero_grad()
        mse_loss(net(rows), targets).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
    return _weights(net)


def with_closure() -> Any:
    net = _same_net()
    _train_by_closure(
        net, hvd.DistributedOptimizer(torch.optim.Adam(net.parameters(), lr=0.01)), batches=_mine(_batches(seed=6))
    )
    return _weights(net)


def with_unused() -> dict[str, Any]:
    """One branch only rank 1 uses, another one nobody."""
    nets = _branches()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(nets.parameters(), lr=0.1, weight_decay=0.1))
    for rows, _ in _mine(_batches(seed=6)):
        optimizer.zero_grad()
        _branched(nets, rows, hvd.rank()).backward()
        # A collective between the passes, while ranks have sent different numbers of gradients.
        hvd.allreduce(torch.zeros(1))
        optimizer.step()
    return {name: _weights(each) for name, each in nets.items()}


def with_unused_by_one() -> dict[str, Any]:
    nets = _branches()
    optimizer = torch.optim.SGD(nets.parameters(), lr=0.1, weight_decay=0.1)
    for rows, _ in _batches(seed=6):
        optimizer.zero_grad()
        sum(_branched(nets, part, number) / 3 for number, part in enumerate(rows.split(4))).backward()
        optimizer.step()
    return {name: _weights(each) for name, each in nets.items()}


def sparse_as_dense() -> Any:
    table = _table()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), sparse_as_dense=True)
    table(torch.tensor([hvd.rank(), 3])).sum().backward()
    optimizer.step()
    return _weights(table)


def sparse_by_one() -> Any:
    table = _table()
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    (table(torch.tensor([0, 1, 2, 3, 3, 3])).sum() / 3).backward()
    optimizer.step()
    return _weights(table)


def sparse() -> str:
    table = _table()
    hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1))
    return _refused(lambda: table(torch.tensor([1])).sum().backward())


def misused() -> dict[str, str]:
    net = _same_net()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
    net(torch.ones(1, 3)).sum().backward()
    found = {"zero_grad after backward": _refused(optimizer.zero_grad)}
    found["a second backward"] = _refused(lambda: net(torch.ones(1, 3)).sum().backward())
    optimizer.step()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        optimizer.step()
    return found | {"step after synchronize": str(told[0].message)}


def joined() -> dict[str, Any]:
    """Rank r has r + 1 batches; twice, as in two epochs."""
    net = _same_net()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
    lasts = []
    for epoch in (6, 7):
        _train(net, optimizer, batches=_mine(_batches(seed=epoch))[: hvd.rank() + 1])
        lasts.append(hvd.join())
        hvd.broadcast_parameters(net.state_dict(), root_rank=lasts[-1])
    return {"lasts": lasts, "weights": _weights(net)}


def joined_by_one() -> Any:
    net = _same_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in (6, 7):
        for number, (rows, targets) in enumerate(_batches(seed=epoch)[:3]):
            optimizer.zero_grad()
            parts = list(zip(rows.split(4), targets.split(4), strict=True))[number:]
            sum(mse_loss(net(part), wanted) / 3 for part, wanted in parts).backward()
            optimizer.step()
    return _weights(net)


def collectives() -> dict[str, Any]:
    rank = hvd.rank()
    ones = torch.ones(2) * (rank + 1)
    in_place = ones.clone()
    handle = hvd.allreduce_async_(in_place, op=hvd.Sum)
    hvd.synchronize(handle)
    return {
        "average": hvd.allreduce(ones).tolist(),
        "average of integers": hvd.allreduce(torch.tensor([rank, 5])).tolist(),
        "maximum": hvd.allreduce(ones, op=hvd.Max).tolist(),
        "scaled": hvd.allreduce(ones, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0).tolist(),
        "half": hvd.allreduce(ones, compression=hvd.Compression.fp16).tolist(),
        "in place": in_place.tolist(),
        "is done": hvd.poll(handle),
        "grouped": [each.tolist() for each in hvd.grouped_allreduce([ones, ones.double() * 2])],
        "ragged": hvd.allgather(torch.full((rank, 2), rank)).tolist(),
        "booleans": hvd.allgather(torch.tensor([rank == 1])).tolist(),
        "broadcast": hvd.broadcast(ones, root_rank=2).tolist(),
        "transposed": hvd.broadcast_(torch.arange(4.0).view(2, 2).t() * rank, root_rank=1).tolist(),
        "even": hvd.alltoall(torch.arange(3) + 10 * rank).tolist(),
        "uneven": [each.tolist() for each in hvd.alltoall(torch.arange(3) + 10 * rank, splits=[0, 1, 2])],
        "scattered": hvd.reducescatter(torch.arange(4), op=hvd.Sum).tolist(),
        "objects": hvd.allgather_object({"rank": rank, "text": "x" * rank}),
        "object": hvd.broadcast_object(["of", rank], root_rank=1),
    }


def gradients() -> dict[str, Any]:
    weights = torch.arange(3.0) + 1
    flows = {
        "allreduce": lambda x: hvd.allreduce(x, op=hvd.Sum).sum() * (hvd.rank() + 1),
        "allgather": lambda x: (hvd.allgather(x[: hvd.rank() + 1]) * torch.arange(6.0)).sum(),
        "broadcast": lambda x: (hvd.broadcast(x, root_rank=1) * weights).sum(),
        "alltoall": lambda x: (hvd.alltoall(x) * weights).sum(),
        "reducescatter": lambda x: (hvd.reducescatter(x, op=hvd.Sum) * (hvd.rank() + 1)).sum(),
    }
    return {name: _gradient(flow) for name, flow in flows.items()}


def refusals() -> dict[str, str]:
    named = [("weight", nn.Parameter(torch.ones(1)))] * 2
    optimizer = torch.optim.SGD([named[0][1]], lr=0.1)
    return {
        "Adasum": _refused(lambda: hvd.allreduce(torch.ones(1), op=hvd.Adasum)),
        "rows that differ": _refused(lambda: hvd.allgather(torch.ones(1, hvd.rank() + 1))),
        "ProcessSet": _refused(lambda: hvd.ProcessSet([0, 1])),
        "elastic": _refused(lambda: hvd.elastic),
        "names twice": _refused(lambda: hvd.DistributedOptimizer(optimizer, named_parameters=named)),
        "predivide": _refused(lambda: hvd.DistributedOptimizer(optimizer, op=hvd.Sum, gradient_predivide_factor=2.0)),
    }


def _net() -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1d(5, affine=False, momentum=0.0).eval(), nn.Tanh(), nn.Linear(5, 2)
    )


def _same_net() -> nn.Module:
    torch.manual_seed(1)
    return _net()


def _branches() -> nn.ModuleDict:
    torch.manual_seed(2)
    return nn.ModuleDict({"shared": nn.Linear(3, 2), "seldom": nn.Linear(2, 1), "never": nn.Linear(2, 1)})


def _branched(nets: nn.ModuleDict, rows: torch.Tensor, rank: int) -> torch.Tensor:
    middle = nets["shared"](rows)
    return (nets["seldom"](middle) if rank == 1 else middle).square().mean()


def _table() -> nn.Embedding:
    torch.manual_seed(3)
    return nn.Embedding(5, 2, sparse=True)


def _batches(seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    drawn = torch.Generator().manual_seed(seed)
    return [(torch.randn(ROWS, 3, generator=drawn), torch.randn(ROWS, 2, generator=drawn)) for _ in range(STEPS)]


def _mine(batches: list[tuple[torch.Tensor, torch.Tensor]]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    part = slice(4 * hvd.rank(), 4 * hvd.rank() + 4)
    return [(rows[part], targets[part]) for rows, targets in batches]


def _train(net: nn.Module, optimizer: Any, *, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for rows, targets in batches:
        optimizer.zero_grad()
        mse_loss(net(rows), targets).backward()
        optimizer.step()


def _train_by_closure(net: nn.Module, optimizer: Any, *, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for rows, targets in batches:

        def loss(rows: torch.Tensor = rows, targets: torch.Tensor = targets) -> torch.Tensor:
            optimizer.zero_grad()
            found = mse_loss(net(rows), targets)
            found.backward()
            return found

        optimizer.step(loss)


def _weights(net: nn.Module) -> list[float]:
    return [float(value) for parameter in net.parameters() for value in parameter.detach().flatten()]


def _gradient(flow: Callable[[torch.Tensor], torch.Tensor]) -> list[float]:
    x = torch.ones(3, requires_grad=True)
    flow(x).backward()
    return [float(value) for value in x.grad]


def _refused(attempt: Callable[[], Any]) -> str:
    try:
        attempt()
    except (AssertionError, NotImplementedError, RuntimeError, ValueError) as error:
        return str(error)
    return ""


SCENARIOS: dict[str, Callable[[], Any]] = {
    "place": place,
    "trained": trained,
    "trained by one": trained_by_one,
    "with Adam": trained_with(),
    "with Adam by one": trained_with_adam_by_one,
    "predivided": trained_with(gradient_predivide_factor=3.0),
    "compressed": trained_with(compression=hvd.Compression.fp16),
    "accumulated": accumulated,
    "with a closure": with_closure,
    "clipped": clipped,
    "clipped by one": clipped_by_one,
    "with unused": with_unused,
    "with unused by one": with_unused_by_one,
    "sparse as dense": sparse_as_dense,
    "sparse by one": sparse_by_one,
    "sparse": sparse,
    "misused": misused,
    "joined": joined,
    "joined by one": joined_by_one,
    "collectives": collectives,
    "gradients": gradients,
    "refusals": refusals,
}
