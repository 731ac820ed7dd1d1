from dataclasses import dataclass, field
from typing import Any, cast

from trainyard.server.connections import ConnectionProtocol, ConnectionTable


@dataclass(eq=False)
class Transport:
    is_aborted: bool = False

    def abort(self) -> None:
        self.is_aborted = True


@dataclass(eq=False)
class Peer:
    """What the table knows of a connection."""

    address: str
    is_idle: bool = True
    is_proven: bool = False
    transport: Transport = field(default_factory=Transport)


def _add(table: ConnectionTable, address: str, **state: Any) -> Peer:
    peer = Peer(address, **state)
    table.add(cast(ConnectionProtocol, peer))
    return peer


def _prove(table: ConnectionTable, peer: Peer) -> None:
    table.prove(cast(ConnectionProtocol, peer))


def test_one_more_connection_takes_the_place_of_the_oldest_unproven_one_of_the_busiest_address() -> None:
    table = ConnectionTable(4)
    proven, quiet, first, second = (_add(table, address) for address in ("a", "a", "b", "b"))
    _prove(table, proven)
    _add(table, "c")
    assert [peer.transport.is_aborted for peer in (proven, quiet, first, second)] == [False, False, True, False]
    assert len(table) == 4


def test_where_all_are_proven_the_longest_idle_gives_way_and_never_one_in_use() -> None:
    table = ConnectionTable(3)
    busy, idle, other = (_add(table, "a", is_idle=is_idle) for is_idle in (False, True, True))
    for peer in (busy, idle, other):
        _prove(table, peer)
    _add(table, "b")
    assert [peer.transport.is_aborted for peer in (busy, idle, other)] == [False, True, False]


def test_a_connection_that_ends_leaves_its_place() -> None:
    table = ConnectionTable(2)
    first, second = _add(table, "a"), _add(table, "a")
    _prove(table, second)
    for _ in range(2):
        table.remove(cast(ConnectionProtocol, first))
        table.remove(cast(ConnectionProtocol, second))
    assert len(table) == 0
