"""Attempts to reach others over the network or a socket, run by jobs and, as a control, by the host.

Each attempt returns when it gets an answer, and raises an OSError when it cannot.
"""

import argparse
import json
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORD = b"who goes there"
# The answer of the tests' name server to every question.
ANSWER = "192.0.2.7"
REACHED = "reached"
LIMIT_S = 5.0
_CLOSED = 9  # nobody listens there


def tcp(targets: dict[str, Any]) -> None:
    _greeted(("127.0.0.1", targets["tcp"]))


def neighbour(targets: dict[str, Any]) -> None:
    _greeted(tuple(targets["neighbour"]))


def yard(targets: dict[str, Any]) -> None:
    with socket.create_connection(tuple(targets["yard"]), timeout=LIMIT_S) as connection:
        connection.sendall(b"GET /_trainyard/health HTTP/1.0\r\n\r\n")
        _expect(connection.recv(100).startswith(b"HTTP/1."))


def udp(targets: dict[str, Any]) -> None:
    _expect(_exchange(("127.0.0.1", targets["udp"]), WORD) == WORD)


def name_server(targets: dict[str, Any]) -> None:
    """Ask for the address of trainyard.test, as a resolver does."""
    question = struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + b"\x09trainyard\x04test\0" + struct.pack(">2H", 1, 1)
    answer = _exchange(("127.0.0.1", targets["dns"]), question)
    _expect(answer[:2] == question[:2] and answer.endswith(socket.inet_aton(ANSWER)))


def refusal_of_the_host(targets: dict[str, Any]) -> None:
    """Connect to a closed port of the host outside the loopback; a refusal counts as an answer."""
    try:
        socket.create_connection((targets["address"], _CLOSED), timeout=LIMIT_S).close()
    except ConnectionRefusedError:
        return


def icmp(targets: dict[str, Any]) -> None:
    """Send a datagram to a closed port; ICMP answers, which the socket reports as a refusal."""
    try:
        _exchange((targets["address"], _CLOSED), WORD)
    except ConnectionRefusedError:
        return


def metadata(_: dict[str, Any]) -> None:
    _find_way("169.254.169.254")


def elsewhere(_: dict[str, Any]) -> None:
    _find_way("198.51.100.1")


def abstract_socket(targets: dict[str, Any]) -> None:
    _greeted(f"\0{targets['abstract']}", socket.AF_UNIX)


def socket_file(targets: dict[str, Any]) -> None:
    _greeted(targets["file"], socket.AF_UNIX)


def socket_file_in_a_channel(targets: dict[str, Any]) -> None:
    channel, seen_by_host = Path("/opt/ml/input/data/sets"), Path(targets["shared"])
    _greeted(str(channel / seen_by_host.name if channel.exists() else seen_by_host), socket.AF_UNIX)


def machine_of_this_machine(_: dict[str, Any]) -> None:
    """Open a vsock socket: sockets between a virtual machine and its host ignore namespaces."""
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


ATTEMPTS: tuple[Callable[[dict[str, Any]], None], ...] = (
    tcp,
    neighbour,
    yard,
    udp,
    name_server,
    refusal_of_the_host,
    icmp,
    metadata,
    elsewhere,
    abstract_socket,
    socket_file,
    socket_file_in_a_channel,
    machine_of_this_machine,
)


def outcomes(targets: dict[str, Any]) -> dict[str, str]:
    """Return the outcome of each attempt: that it was answered, or why not."""
    return {attempt.__name__: _outcome(attempt, targets) for attempt in ATTEMPTS}


def _outcome(attempt: Callable[[dict[str, Any]], None], targets: dict[str, Any]) -> str:
    try:
        attempt(targets)
    except OSError as error:
        return type(error).__name__ if error.errno is None else os.strerror(error.errno)
    return REACHED


def _greeted(address: Any, family: int = socket.AF_INET) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(LIMIT_S)
        connection.connect(address)
        _expect(connection.recv(100) == WORD)


def _exchange(address: tuple[str, int], data: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(LIMIT_S)
        asking.connect(address)
        asking.send(data)
        return asking.recv(512)


def _find_way(address: str) -> None:
    """Look up a route. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect((address, 80))


def _expect(is_so: bool) -> None:
    if not is_so:
        raise ConnectionError("somebody else answered")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--targets", type=json.loads, required=True)
    sys.stdout.write(json.dumps(outcomes(parser.parse_args().targets)) + "\n")
