"""What mpirun runs as each rank: runs the program with all its variables, and reports how it ended."""

import os
import socket
import sys
import time
from typing import NoReturn

from trainyard.instance.launch.launcher import FAILURE_WINDOW_S, RankEntered, RankLauncher, end_process, execute
from trainyard.instance.launch.mpi.remote import SPEC_VARIABLE
from trainyard.instance.launch.spec import decode_spec

# The socket in the folder of reports that takes the output of the host's ranks.
OUTPUT = "ranks.socket"


def main() -> None:
    _, _, *program = sys.argv
    environment = dict(os.environ)
    spec = decode_spec(environment.pop(SPEC_VARIABLE))
    rank, local_rank = (int(environment[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "LOCAL_RANK"))
    launcher = RankLauncher(spec, environment, output=_output(spec.folder), only=(local_rank, rank))
    try:
        code = launcher.run()
    except RankEntered as entered:
        environment = entered.environment
    else:
        _end(code, is_stopped=launcher.is_stopped)
    execute(program, environment)


def _output(folder: str) -> int:
    output = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    output.connect(f"{folder}/{OUTPUT}")
    return output.detach()


def _end(code: int, *, is_stopped: bool) -> NoReturn:
    """Exit so that mpirun ends all other ranks soon, but not before they could fail by themselves.

    A stopped rank exits with 0, since any other code would make mpirun cut short the time that others need to stop.
    """
    if is_stopped:
        end_process(0)
    if code:
        time.sleep(FAILURE_WINDOW_S)
    end_process(code)
