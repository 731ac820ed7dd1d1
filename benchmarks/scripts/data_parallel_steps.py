"""Times steps of one model in turns: with DistributedOptimizer of horovod.torch, and with torch's DDP.

Takes a width and a number of rounds. Rank 0 prints the seconds of each step of every round as JSON.
"""

import copy
import json
import sys
import time
from typing import Any

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

STEPS = 10


def network(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6 * width, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6 * width, 16 * width, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * width * 25, 120 * width),
        nn.ReLU(),
        nn.Linear(120 * width, 84 * width),
        nn.ReLU(),
        nn.Linear(84 * width, 10),
    )


def seconds(model: nn.Module, optimizer: Any) -> float:
    """Return the seconds of one step, from a barrier to a barrier."""
    inputs, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    hvd.barrier()
    begun = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    hvd.barrier()
    return (time.perf_counter() - begun) / STEPS


def main(width: int, rounds: int) -> None:
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(0)
    ours = network(width)
    theirs = DistributedDataParallel(copy.deepcopy(ours))
    stand_in = hvd.DistributedOptimizer(
        torch.optim.SGD(ours.parameters(), lr=0.01, momentum=0.9), named_parameters=ours.named_parameters()
    )
    plain = torch.optim.SGD(theirs.parameters(), lr=0.01, momentum=0.9)
    found: dict[str, list[float]] = {"horovod": [], "ddp": []}
    # The first round warms up the caches.
    for number in range(rounds + 1):
        turns = [("horovod", ours, stand_in), ("ddp", theirs, plain)]
        for name, model, optimizer in turns if number % 2 else reversed(turns):
            took = seconds(model, optimizer)
            found[name] += [took] if number else []
    if hvd.rank() == 0:
        print(json.dumps({"parameters": sum(p.numel() for p in ours.parameters()), **found}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
