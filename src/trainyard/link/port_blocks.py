"""Who has which ports of a machine: known to all its yards, and forgotten by the kernel with the last who held them."""

import socket

BLOCK = 16  # ports that are held together
ENGINE, AGENT = "engine", "agent"  # who may hold one: both at the same time


def ports_of(hosts: int) -> int:
    """How many ports a job of so many hosts has: the master's, then one for the worker and one for a server of each."""
    return 1 + 2 * hosts


def hold_block(first: int, holder: str) -> socket.socket | None:
    """The hold on the block of ports that begins at `first`, until it is closed; None when another such holder has it.

    It is an abstract socket, whose name is taken on the whole machine as long as it is open.
    """
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0trainyard-ports-{first}-{holder}")
    except OSError:
        held.close()
        return None
    return held
