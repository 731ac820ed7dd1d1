"""A launcher in a Python of its own: `python -I -S -c BOOT PACKAGE ORDERS PROGRAM…`, whose ranks are executed."""

import os
import sys

from trainyard.instance.launch.boot import boot
from trainyard.instance.launch.launcher import IsRank, Launcher, end, execute
from trainyard.instance.launch.orders import decode

BOOT = boot("main")


def main() -> None:
    _, package, text, *program = sys.argv
    orders = decode(text)
    if orders.mpi is not None:
        from trainyard.instance.launch.mpi.host import run_by_mpirun  # most need none of it

        code = run_by_mpirun(orders, orders.mpi, package=package, program=program)
        if code is not None:
            end(code)
    try:
        code = Launcher(orders, dict(os.environ)).run()
    except IsRank as rank:
        environment = rank.environment
    else:
        end(code)
    execute(program, environment)
