"""Events of a program's processes, as the agent receives them."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.instance.agent.layout import ProgramUser
from trainyard.instance.agent.watch.event_server import EventServer
from trainyard.instance.rule_evaluation.event_client import EventClient
from trainyard.link.event_protocol import MAX_EVENT_BYTES, SOCKET, AgentEvent, AgentEventKind
from trainyard.link.folders import InstanceFolder


@pytest.fixture
def folder(tmp_path: Path) -> InstanceFolder:
    """A folder deeper than the path of a socket may be long."""
    made = InstanceFolder(tmp_path / ("deep" * 30) / "algo-1")
    (made.ml / SOCKET).parent.mkdir(parents=True)
    return made


@pytest.fixture
def hearing(folder: InstanceFolder) -> Iterator[EventServer]:
    made = EventServer(folder, ProgramUser(None))
    yield made
    made.close()


def connect(folder: InstanceFolder) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    opened = os.open((folder.ml / SOCKET).parent, os.O_RDONLY)
    connection.connect(f"/proc/self/fd/{opened}/told")
    os.close(opened)
    return connection


def heard(hearing: EventServer) -> list[AgentEvent]:
    return list(hearing.drain())


def test_events_arrive_in_order(folder: InstanceFolder, hearing: EventServer) -> None:
    teller = EventClient(str(folder.ml))
    teller.send(AgentEventKind.NOTE, {"text": "a"})
    teller.send(AgentEventKind.PROGRESS, {"worker": "worker_0", "overhead": float("nan")})
    assert heard(hearing) == [
        AgentEvent(AgentEventKind.NOTE, {"text": "a"}),
        AgentEvent(AgentEventKind.PROGRESS, {"worker": "worker_0", "overhead": "nan"}),
    ]


def test_a_line_is_read_when_it_is_complete(folder: InstanceFolder, hearing: EventServer) -> None:
    with connect(folder) as connection:
        connection.sendall(b'{"kind": "note", "pay')
        assert heard(hearing) == []
        connection.sendall(b'load": {"text": "x"}}\n')
        assert heard(hearing) == [AgentEvent(AgentEventKind.NOTE, {"text": "x"})]


def test_invalid_lines_are_ignored(folder: InstanceFolder, hearing: EventServer) -> None:
    with connect(folder) as connection:
        connection.sendall(b'\xff\n[]\n{"kind": "note"}\n{"kind": "evil", "payload": {}}\n' + b"[" * 9000 + b"\n")
        connection.sendall(b'{"kind": "note", "payload": {"text": "y"}}\n')
        assert heard(hearing) == [AgentEvent(AgentEventKind.NOTE, {"text": "y"})]


def test_a_line_that_never_ends_is_cut_off_with_its_connection(folder: InstanceFolder, hearing: EventServer) -> None:
    with connect(folder) as connection:
        connection.setblocking(False)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_without_end(connection, hearing, most_bytes=3 * MAX_EVENT_BYTES)


def send_without_end(connection: socket.socket, hearing: EventServer, *, most_bytes: int) -> None:
    sent = 0
    while sent <= most_bytes:
        try:
            sent += connection.send(b"x" * 65536)
        except BlockingIOError:
            assert heard(hearing) == []


def test_a_flood_is_read_in_parts_so_that_the_agent_loses_no_time(
    folder: InstanceFolder, hearing: EventServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = [connect(folder) for _ in range(100)]
    for connection in connections:
        connection.sendall(b'{"kind": "note", "payload": {"text": "x"}}\n' * 10)
    monkeypatch.setattr("trainyard.instance.agent.watch.event_server._READ_LIMIT_S", 0.0)
    first, second, third = (list(hearing.read_events()) for _ in range(3))  # the first call accepts the connections
    assert len(first) == 0
    assert 0 < len(second) == len(third) < 1000
    assert len(heard(hearing)) == 1000 - len(second) - len(third)
    for connection in connections:
        connection.close()


def test_only_the_program_may_write_to_the_socket(folder: InstanceFolder, hearing: EventServer) -> None:
    assert stat.S_IMODE((folder.ml / SOCKET).stat().st_mode) == 0o600


def test_a_client_without_an_agent_neither_waits_nor_raises(tmp_path: Path) -> None:
    teller = EventClient(str(tmp_path))
    for number in range(1000):
        teller.send(AgentEventKind.NOTE, {"text": str(number)})
    teller.flush(0.01)
