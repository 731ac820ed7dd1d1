"""Runs programs as several ranks of this machine, which it forks: torch is imported once, not by each of them.

Called with a folder and what to run there, one after another, such as program.py:3 for three ranks. Each has a folder
of its own, program-3, into which ranks write what the function `main` of the program returns, as JSON.
"""

import json
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path

import sklearn.datasets  # noqa: F401  # imported once, as torch is
import torch
import torch._dynamo  # which optimizers import when they are first made, in every process

LONGEST_S = 120


def run(folder: Path, program: Path, size: int) -> bool:
    """Fork the ranks of a program and wait for them; whether all of them ended well."""
    place = folder / f"{program.stem}-{size}"
    place.mkdir()
    ports = _free_port(), _free_port()
    pids = [_fork(place, program, rank=rank, size=size, ports=ports) for rank in range(size)]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return not any(statuses)


def _fork(place: Path, program: Path, *, rank: int, size: int, ports: tuple[int, int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(LONGEST_S)  # a rank that waits for one that has failed
        os.environ |= {
            "RANK": f"{rank}",
            "WORLD_SIZE": f"{size}",
            "LOCAL_RANK": f"{rank}",
            "LOCAL_WORLD_SIZE": f"{size}",
        }
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{ports[0]}", "OTHER_PORT": f"{ports[1]}"}
        os.environ["SM_MODEL_DIR"] = str(place)
        torch.set_num_threads(1)
        main = runpy.run_path(str(program), run_name="__main__").get("main")
        if main:
            (place / f"{rank}.json").write_text(json.dumps(main()))
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.exit(status)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


if __name__ == "__main__":
    orders = [each.rpartition(":") for each in sys.argv[2:]]
    sys.exit(not all(run(Path(sys.argv[1]), Path(program), int(size)) for program, _, size in orders))
