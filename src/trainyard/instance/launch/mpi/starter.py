"""What mpirun runs as each rank: it runs the program with all variables, and tells how that has ended."""

import os
import socket
import sys
import time
from typing import NoReturn

from trainyard.instance.launch.launcher import SETTLE_S, IsRank, Launcher, end, execute
from trainyard.instance.launch.mpi.remote import VARIABLE
from trainyard.instance.launch.orders import decode

OUTPUT = "ranks.socket"  # in the folder of reports: where the launcher of the host takes the lines of its ranks


def main() -> None:
    _, _, *program = sys.argv
    environment = dict(os.environ)
    orders = decode(environment.pop(VARIABLE))
    rank, local_rank = (int(environment[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "LOCAL_RANK"))
    launcher = Launcher(orders, environment, output=_output(orders.folder), only=(local_rank, rank))
    try:
        code = launcher.run()
    except IsRank as found:
        environment = found.environment
    else:
        _end(code, is_stopped=launcher.is_stopped)
    execute(program, environment)


def _output(folder: str) -> int:
    output = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    output.connect(f"{folder}/{OUTPUT}")
    return output.detach()


def _end(code: int, *, is_stopped: bool) -> NoReturn:
    """End so that mpirun ends all others soon, but not before they could fail by themselves.

    Of a rank that was to stop it learns no code, for it would hurry the others, which may need their time for that.
    """
    if is_stopped:
        end(0)
    if code:
        time.sleep(SETTLE_S)
    end(code)
