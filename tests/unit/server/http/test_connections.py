import inspect
from dataclasses import dataclass, field
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from trainyard.server.http.connections import ConnectionProtocol, ConnectionTable


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
    is_authenticated: bool = False
    transport: Transport = field(default_factory=Transport)


def _add(table: ConnectionTable, address: str, **state: Any) -> Peer:
    peer = Peer(address, **state)
    table.add(cast(ConnectionProtocol, peer))
    return peer


def _authenticate(table: ConnectionTable, peer: Peer) -> None:
    table.authenticate(cast(ConnectionProtocol, peer))


def test_at_the_limit_a_connection_replaces_the_oldest_unauthenticated_one_of_the_busiest_address() -> None:
    table = ConnectionTable(4)
    authenticated, quiet, first, second = (_add(table, address) for address in ("a", "a", "b", "b"))
    _authenticate(table, authenticated)
    _add(table, "c")
    assert [peer.transport.is_aborted for peer in (authenticated, quiet, first, second)] == [False, False, True, False]
    assert len(table) == 4


def test_if_all_are_authenticated_the_longest_idle_is_replaced_and_never_one_in_use() -> None:
    table = ConnectionTable(3)
    busy, idle, other = (_add(table, "a", is_idle=is_idle) for is_idle in (False, True, True))
    for peer in (busy, idle, other):
        _authenticate(table, peer)
    _add(table, "b")
    assert [peer.transport.is_aborted for peer in (busy, idle, other)] == [False, True, False]


def test_a_closed_connection_leaves_the_table() -> None:
    table = ConnectionTable(2)
    first, second = _add(table, "a"), _add(table, "a")
    _authenticate(table, second)
    for _ in range(2):
        table.remove(cast(ConnectionProtocol, first))
        table.remove(cast(ConnectionProtocol, second))
    assert len(table) == 0


USED_OF_THE_PROTOCOL = {
    *("client", "cycle", "headers", "loop", "parser", "pipeline", "scheme", "scope", "timeout_keep_alive", "transport"),
    *("url", "_unset_keepalive_if_required", "connection_lost", "connection_made", "data_received", "on_body"),
    *("on_header", "on_headers_complete", "on_message_begin", "on_message_complete", "on_response_complete", "on_url"),
    *("send_400_response", "shutdown"),
}
USED_OF_THE_CYCLE = {
    *("disconnected", "expected_content_length", "keep_alive", "message_event", "more_body", "response_complete"),
    "transport",
}


def test_uvicorn_has_the_internals_that_connections_use() -> None:
    """If this fails after an upgrade of uvicorn, compare its httptools_impl.py with the last version that passed.

    Adapt `server/http/connections.py`, run `tests/conformance` and the tests of slow and large requests, and only then
    raise the bound of uvicorn in pyproject.toml.
    """
    assert USED_OF_THE_PROTOCOL - names_in(HttpToolsProtocol) == set()
    assert USED_OF_THE_CYCLE - names_in(RequestResponseCycle) == set()


def names_in(cls: type) -> set[str]:
    """Return the attributes of a class, and every name that its methods use, which includes instance attributes."""
    methods = [function for _, function in inspect.getmembers(cls, inspect.isfunction)]
    return {*dir(cls), *(name for method in methods for name in method.__code__.co_names)}
