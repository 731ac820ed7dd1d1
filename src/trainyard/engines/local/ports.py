"""Ports for the rendezvous of a job's processes, chosen so that no two jobs of the machine have the same.

Jobs that are not isolated share the ports of the machine, and a program may bind its master port on every address. So
each attempt has a block of ports of its own, outside the ephemeral range of the kernel. The owner of a block holds an
abstract socket named after it: the engine until the end of the attempt, and the agent of the first instance as long as
it lives, so that the block stays taken if either is killed. Yards of other users see it too.
"""

import errno
import hashlib
import socket
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainyard.link.folders import AttemptRef
from trainyard.link.port_blocks import AGENT, BLOCK_PORTS, ENGINE, hold_block

_LOWEST_PORT, _HIGHEST_PORT = 10_000, 65_536
_EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortAllocator:
    """Holds the port blocks of the attempts that this engine has started. Safe to share between threads."""

    def __init__(self) -> None:
        self._held: dict[AttemptRef, list[socket.socket]] = {}
        weakref.finalize(self, _close_all, self._held)

    def allocate(self, attempt: AttemptRef, count: int) -> int:
        """Return the first of `count` consecutive ports, held until `release`. Raises OSError if none are free."""
        for first in _candidates(attempt):
            held = _hold_all(range(first, first + count, BLOCK_PORTS))
            if held and all(map(_is_free, range(first, first + count))):
                self._held[attempt] = held
                return first
            _close(held)
        raise OSError(errno.EADDRNOTAVAIL, f"no {count} consecutive ports are free on this machine")

    def release(self, attempt: AttemptRef) -> None:
        _close(self._held.pop(attempt, ()))


def _candidates(attempt: AttemptRef) -> Iterator[int]:
    """Yield the first ports of all blocks, in a different order for each attempt."""
    blocks = _blocks()
    start = int.from_bytes(hashlib.sha256(str(attempt).encode()).digest()[:4], "big") % len(blocks)
    yield from blocks[start:]
    yield from blocks[:start]


def _blocks() -> range:
    low, high = map(int, _EPHEMERAL_RANGE_FILE.read_text().split())
    if low - _LOWEST_PORT >= _HIGHEST_PORT - high:
        return range(_LOWEST_PORT, low - BLOCK_PORTS, BLOCK_PORTS)
    return range(high + 1, _HIGHEST_PORT - BLOCK_PORTS, BLOCK_PORTS)


def _hold_all(blocks: range) -> list[socket.socket]:
    """Hold all of these blocks, or none if another process has one of them."""
    held: list[socket.socket] = []
    for first in blocks:
        hold = _hold(first)
        if hold is None:
            _close(held)
            return []
        held.append(hold)
    return held


def _hold(first: int) -> socket.socket | None:
    agents = hold_block(first, AGENT)
    if agents is None:
        # The engine that chose it is gone, but the job is still running.
        return None
    with agents:
        return hold_block(first, ENGINE)


def _close_all(held: dict[AttemptRef, list[socket.socket]]) -> None:
    for each in held.values():
        _close(each)


def _close(held: Iterable[socket.socket]) -> None:
    for each in held:
        each.close()


def _is_free(port: int) -> bool:
    """Whether a program could listen on a port on all addresses."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError as error:
            # With any other error this machine does not have the address family.
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
    return True
