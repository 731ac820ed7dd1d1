"""Ranks that train together: rank 0 prints when all have met, then the times of all-reduce and steps in each turn.

The clock of the machine is divided into slots. From `--first` on, every other slot is a turn of this program, so that
two programs that run side by side are measured in alternation, and a busy machine slows both. A turn that does not end
within its slot is reported as late.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

SLOT_S = 1.0
REDUCED_BYTES = 16 << 20
# Per turn; the median is reported.
REPEATS = 6
BATCH, WIDTH, CLASSES = 64, 512, 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the slot that the first turn is in")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    _tell({"met_ns": time.time_ns(), "size": dist.get_world_size()})
    if options.turns:
        _take_turns(options.first, options.turns)
    dist.barrier()
    dist.destroy_process_group()


def _take_turns(first: int, turns: int) -> None:
    values, step = torch.ones(REDUCED_BYTES // 4), _training()

    def reduce() -> None:
        dist.all_reduce(values.fill_(1.0))

    # Warm up.
    for work in (reduce, step):
        _median(work)
    assert values[0].item() == values[-1].item() == dist.get_world_size(), values
    for slot in range(first, first + 2 * turns, 2):
        time.sleep(max(0.0, slot * SLOT_S - time.time()))
        is_early = time.time() < (slot + 0.5) * SLOT_S
        told = {"slot": slot, "all_reduce_s": _median(reduce), "step_s": _median(step)}
        _tell(told | {"is_late": not is_early or time.time() > (slot + 1) * SLOT_S})


def _training() -> Callable[[], None]:
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, CLASSES)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    inputs, labels = torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step


def _median(work: Callable[[], None]) -> float:
    """Return the median seconds when all ranks start together, without the first run, which wakes all threads."""
    seconds = []
    for _ in range(REPEATS + 1):
        dist.barrier()
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[1:])


def _tell(told: dict[str, float]) -> None:
    if dist.get_rank() == 0:
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
