"""Ports by which the processes of a job meet, chosen so that no two jobs of the machine have the same.

Jobs that are not isolated share the ports of the machine, and a program may take its master port on every address. So
each attempt has a block of ports of its own, outside of those that the kernel gives away by itself. Who has a block
holds an abstract socket of its name: the engine from the choice to the end of the attempt, and the agent of the first
instance as long as it lives, so that the block stays taken when either is killed. Yards of other users see it too.
"""

import errno
import hashlib
import socket
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainyard.link.folders import AttemptRef
from trainyard.link.port_blocks import AGENT, BLOCK, ENGINE, hold_block

_LOWEST, _HIGHEST = 10_000, 65_536
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """The blocks of the attempts that this engine has started. Safe to share between threads."""

    def __init__(self) -> None:
        self._held: dict[AttemptRef, list[socket.socket]] = {}
        weakref.finalize(self, _close_all, self._held)

    def choose(self, attempt: AttemptRef, count: int) -> int:
        """The first of `count` ports in a row that are the attempt's until `release`; OSError when there are none."""
        for first in _candidates(attempt):
            held = _hold_all(range(first, first + count, BLOCK))
            if held and all(map(_is_free, range(first, first + count))):
                self._held[attempt] = held
                return first
            _close(held)
        raise OSError(errno.EADDRNOTAVAIL, f"no {count} ports in a row are free on this machine")

    def release(self, attempt: AttemptRef) -> None:
        _close(self._held.pop(attempt, ()))


def _candidates(attempt: AttemptRef) -> Iterator[int]:
    """Where a block may begin: in another order for each attempt."""
    blocks = _blocks()
    start = int.from_bytes(hashlib.sha256(str(attempt).encode()).digest()[:4], "big") % len(blocks)
    yield from blocks[start:]
    yield from blocks[:start]


def _blocks() -> range:
    low, high = map(int, _EPHEMERAL.read_text().split())
    if low - _LOWEST >= _HIGHEST - high:
        return range(_LOWEST, low - BLOCK, BLOCK)
    return range(high + 1, _HIGHEST - BLOCK, BLOCK)


def _hold_all(blocks: range) -> list[socket.socket]:
    """Holds on all of these blocks; none when one is another's."""
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
    if agents is None:  # the engine that chose it is gone, and the job goes on
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
    """Whether a program could listen there, on all addresses."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):  # otherwise there is no such family here
                return False
    return True
