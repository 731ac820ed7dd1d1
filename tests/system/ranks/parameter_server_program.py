"""Two parameter servers and three workers, which this process forks. A worker is killed as it works, and replaced.

Called with a folder, into which the worker with rank 0 writes what came out of it.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which optimizers import when they are first made, in every process

from trainyard.instance.parameter_server import main
from trainyard.parameter_server import Worker

STEPS = 60
TRUTH = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, -2.0]])


def work(folder: Path, rank: int, steps: int) -> None:
    """Learn a linear map from examples of this worker's own."""
    os.environ["RANK"] = str(rank)
    torch.manual_seed(os.getpid())
    torch.set_num_threads(1)
    model = torch.nn.Linear(3, 2)
    stale = 0
    with Worker(model.named_parameters(), optimizer="SGD", lr=0.05, momentum=0.5) as server:
        for step in range(steps):
            server.pull()
            rows = torch.randn(16, 3)
            model.zero_grad()
            torch.nn.functional.mse_loss(model(rows), rows @ TRUTH.t() + 1.0).backward()
            server.push()
            stale = max(stale, server.staleness)
            (folder / f"{rank}.steps").write_text(str(step))
        server.finish()
    if rank == 0:
        found = {"weight": model.weight.tolist(), "bias": model.bias.tolist(), "stale": stale}
        (folder / "found.json").write_text(json.dumps(found))


def run(folder: Path) -> int:
    """Kill the second worker after a while; zero when all the others, and the servers, ended well."""
    servers = [_fork(serve, number) for number in range(2)]
    first, second, third = (_fork(work, folder, rank, STEPS if rank != 1 else 1_000_000) for rank in range(3))
    _wait_for_steps(folder, rank=1, steps=20)
    os.kill(second, signal.SIGKILL)
    killed = _status(second)
    replacement = _fork(work, folder, 1, STEPS)
    statuses = [_status(pid) for pid in (first, replacement, third, *servers)]
    return 0 if killed == -signal.SIGKILL and not any(statuses) else 1


def serve(number: int) -> None:
    os.environ["TRAINYARD_PS_INDEX"] = str(number)
    main.main()


def _status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(function: Callable[..., None], *arguments: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(60)
        function(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _wait_for_steps(folder: Path, *, rank: int, steps: int) -> None:
    file = folder / f"{rank}.steps"
    while not file.exists() or int(file.read_text() or 0) < steps:
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
