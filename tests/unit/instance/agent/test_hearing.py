"""What the processes of a program tell, as the agent hears it."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.instance.agent.hearing import Hearing
from trainyard.instance.agent.layout import Owner
from trainyard.instance.judge.telling import Teller
from trainyard.link.folders import InstanceFolder
from trainyard.link.told import MOST_BYTES, SOCKET, Told, ToldKind


@pytest.fixture
def folder(tmp_path: Path) -> InstanceFolder:
    """One that lies deeper than the path of a socket may be long."""
    made = InstanceFolder(tmp_path / ("deep" * 30) / "algo-1")
    (made.ml / SOCKET).parent.mkdir(parents=True)
    return made


@pytest.fixture
def hearing(folder: InstanceFolder) -> Iterator[Hearing]:
    made = Hearing(folder, Owner(None))
    yield made
    made.close()


def connect(folder: InstanceFolder) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    opened = os.open((folder.ml / SOCKET).parent, os.O_RDONLY)
    connection.connect(f"/proc/self/fd/{opened}/told")
    os.close(opened)
    return connection


def heard(hearing: Hearing) -> list[Told]:
    return list(hearing.hear_out())


def test_what_a_teller_tells_is_heard_in_order(folder: InstanceFolder, hearing: Hearing) -> None:
    teller = Teller(str(folder.ml))
    teller.tell(ToldKind.NOTE, {"text": "a"})
    teller.tell(ToldKind.PROGRESS, {"worker": "worker_0", "overhead": float("nan")})
    assert heard(hearing) == [
        Told(ToldKind.NOTE, {"text": "a"}),
        Told(ToldKind.PROGRESS, {"worker": "worker_0", "overhead": "nan"}),
    ]


def test_a_line_is_heard_when_it_is_whole(folder: InstanceFolder, hearing: Hearing) -> None:
    with connect(folder) as connection:
        connection.sendall(b'{"kind": "note", "pay')
        assert heard(hearing) == []
        connection.sendall(b'load": {"text": "x"}}\n')
        assert heard(hearing) == [Told(ToldKind.NOTE, {"text": "x"})]


def test_lines_that_are_none_of_ours_are_left_out(folder: InstanceFolder, hearing: Hearing) -> None:
    with connect(folder) as connection:
        connection.sendall(b'\xff\n[]\n{"kind": "note"}\n{"kind": "evil", "payload": {}}\n' + b"[" * 9000 + b"\n")
        connection.sendall(b'{"kind": "note", "payload": {"text": "y"}}\n')
        assert heard(hearing) == [Told(ToldKind.NOTE, {"text": "y"})]


def test_a_line_that_never_ends_is_cut_off_with_its_connection(folder: InstanceFolder, hearing: Hearing) -> None:
    with connect(folder) as connection:
        connection.setblocking(False)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_without_end(connection, hearing, most_bytes=3 * MOST_BYTES)


def send_without_end(connection: socket.socket, hearing: Hearing, *, most_bytes: int) -> None:
    sent = 0
    while sent <= most_bytes:
        try:
            sent += connection.send(b"x" * 65536)
        except BlockingIOError:
            assert heard(hearing) == []


def test_a_flood_is_heard_bit_by_bit_so_that_the_agent_loses_no_time(
    folder: InstanceFolder, hearing: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = [connect(folder) for _ in range(100)]
    for connection in connections:
        connection.sendall(b'{"kind": "note", "payload": {"text": "x"}}\n' * 10)
    monkeypatch.setattr("trainyard.instance.agent.hearing._LONGEST_S", 0.0)
    first, second, third = (list(hearing.hear()) for _ in range(3))  # the first lets them in
    assert len(first) == 0
    assert 0 < len(second) == len(third) < 1000
    assert len(heard(hearing)) == 1000 - len(second) - len(third)
    for connection in connections:
        connection.close()


def test_only_the_program_may_write_to_the_socket(folder: InstanceFolder, hearing: Hearing) -> None:
    assert stat.S_IMODE((folder.ml / SOCKET).stat().st_mode) == 0o600


def test_a_teller_without_an_agent_neither_waits_nor_raises(tmp_path: Path) -> None:
    teller = Teller(str(tmp_path))
    for number in range(1000):
        teller.tell(ToldKind.NOTE, {"text": str(number)})
    teller.flush(0.01)
