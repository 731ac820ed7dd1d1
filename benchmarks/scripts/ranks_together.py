"""Ranks that train together: rank 0 prints when all have met, and then what all-reduce and steps took, as JSON.

Called with how many all-reduces and steps to take, of which each figure is the median. It runs by itself in nobody's
launcher but torchrun's or the yard's, which tell it of the others.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

REDUCED_BYTES = 16 << 20
BATCH, WIDTH, CLASSES = 64, 512, 10


def main(count: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        print(json.dumps({"met_ns": time.time_ns()}), flush=True)
    if count:
        told = {"all_reduce_s": _all_reduce(count), "step_s": _steps(count), "size": dist.get_world_size()}
        if rank == 0:
            print(json.dumps(told), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def _all_reduce(count: int) -> float:
    values = torch.ones(REDUCED_BYTES // 4)
    found = _median(lambda: dist.all_reduce(values.fill_(1.0)), count)
    assert values[0].item() == values[-1].item() == dist.get_world_size(), values
    return found


def _steps(count: int) -> float:
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, CLASSES)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    inputs, labels = torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return _median(step, count)


def _median(work: Callable[[], object], count: int) -> float:
    """Of the seconds that each takes when all ranks begin together; the first few are for the caches."""
    seconds = []
    for number in range(count + 3):
        dist.barrier()
        begun = time.perf_counter()
        work()
        if number >= 3:
            seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


if __name__ == "__main__":
    main(int(sys.argv[-1]))
