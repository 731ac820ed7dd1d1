"""How the launcher of the first host reaches those of the others; as a program, what mpirun runs instead of ssh.

Who connects proves that it knows the job's secret, without saying it, and then says what it wants:

    {"start": LINE}    run this command line of the shell; answered by {"code": N} when that has ended
    {"hold": true}     live as long as this connection; {"end": N} on it tells that mpirun has ended with this code
"""

import hashlib
import hmac
import json
import os
import secrets
import shlex
import socket
import sys
from typing import Any

from trainyard.instance.launch.orders import LaunchOrders, decode
from trainyard.instance.launch.variables import Cluster

VARIABLE = "TRAINYARD_LAUNCH"  # has the orders of the launcher of a host, for all that it starts
GREETING_S = 5.0

_MOST_BYTES = 1 << 20
_HEAD_BYTES = 4


def port_of(cluster: Cluster, host: str) -> int:
    """Where the launcher of a host listens: the port of its worker, which no rank of MPI uses."""
    return cluster.port + 1 + cluster.hosts.index(host)


def connect(orders: LaunchOrders, host: str, wish: dict[str, Any]) -> socket.socket:
    """A connection on which the launcher of that host has been told the wish. OSError when there is none yet."""
    cluster = orders.cluster
    connection = socket.create_connection((cluster.addresses[host], port_of(cluster, host)), timeout=GREETING_S)
    try:
        nonce = str(receive(connection)["nonce"])
        send(connection, {**wish, "proof": _proof(orders.secret, nonce)})
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def greeted(connection: socket.socket, secret: str) -> dict[str, Any]:
    """What the other side wants. OSError when it does not know the secret, or says nothing."""
    connection.settimeout(GREETING_S)
    nonce = secrets.token_hex(16)
    send(connection, {"nonce": nonce})
    wish = receive(connection)
    if not hmac.compare_digest(str(wish.get("proof")), _proof(secret, nonce)):
        raise PermissionError("the other side does not know the secret of this job")
    connection.settimeout(None)
    return wish


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    connection.sendall(len(data).to_bytes(_HEAD_BYTES, "big") + data)


def receive(connection: socket.socket) -> dict[str, Any]:
    """ConnectionError at the end of the connection, or when what comes is no message."""
    size = int.from_bytes(_exactly(connection, _HEAD_BYTES), "big")
    if size > _MOST_BYTES:
        raise ConnectionError(f"a message of {size} bytes is announced")
    try:
        message = json.loads(_exactly(connection, size))
    except ValueError as error:
        raise ConnectionError("what came is no message") from error
    if not isinstance(message, dict):
        raise ConnectionError("what came is no message")
    return message


def agent_script(orders: LaunchOrders, boot: str, *, package: str) -> str:
    """A script that is called as ssh is: with a host, and the words of a command line."""
    return f'#!/bin/sh\nexec {shlex.join([orders.python, "-I", "-S", "-c", boot, package])} "$@"\n'


def main() -> None:
    _, _, host, *words = sys.argv
    orders = decode(os.environ[VARIABLE])
    try:
        with connect(orders, host, {"start": " ".join(words)}) as connection:
            code = receive(connection)["code"]
    except OSError as error:
        sys.exit(f"[trainyard] {host} cannot be reached: {error}")
    os._exit(code if 0 <= code < 256 else 1)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the other side has gone")
        data += chunk
    return data


def _proof(secret: str, nonce: str) -> str:
    return hmac.new(secret.encode(), f"launch:{nonce}".encode(), hashlib.sha256).hexdigest()
