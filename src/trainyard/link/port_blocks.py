"""Blocks of ports that attempts hold on a machine. All its yards see them; the kernel frees them with their holders."""

import socket

# The size of a block.
BLOCK_PORTS = 16
# An engine and an agent may hold the same block at the same time.
ENGINE, AGENT = "engine", "agent"


def ports_needed(hosts: int) -> int:
    """Return how many ports a job has: the master port, and two per host, for its worker and its server."""
    return 1 + 2 * hosts


def hold_block(first: int, holder: str) -> socket.socket | None:
    """Hold the block of ports that begins at `first` until the result is closed; None if another such holder has it.

    It is an abstract socket, whose name is taken on the whole machine as long as it is open.
    """
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0trainyard-ports-{first}-{holder}")
    except OSError:
        held.close()
        return None
    return held
