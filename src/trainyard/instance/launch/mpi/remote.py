"""How the launcher of the first host reaches those of the others. As a program, it is what mpirun runs instead of ssh.

A client proves that it knows the job's secret, without sending it, together with its request:

    {"start": LINE}    run this shell command line; the answer is {"code": N} when it has ended
    {"hold": true}     live as long as this connection; {"end": N} on it means that mpirun has ended with this code
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

from trainyard.instance.launch.spec import LauncherSpec, decode_spec
from trainyard.instance.launch.variables import RankCluster

# The environment variable with the launcher's spec, for all processes that it starts.
SPEC_VARIABLE = "TRAINYARD_LAUNCH"
HANDSHAKE_TIMEOUT_S = 5.0

_MAX_MESSAGE_BYTES = 1 << 20
_HEAD_BYTES = 4


def launcher_port(cluster: RankCluster, host: str) -> int:
    """Return the port of a host's launcher: that of its worker, which MPI ranks do not use."""
    return cluster.port + 1 + cluster.hosts.index(host)


def connect(spec: LauncherSpec, host: str, request: dict[str, Any]) -> socket.socket:
    """Send a request to the launcher of a host and return the connection. OSError if it does not listen yet."""
    cluster = spec.cluster
    connection = socket.create_connection(
        (cluster.addresses[host], launcher_port(cluster, host)), timeout=HANDSHAKE_TIMEOUT_S
    )
    try:
        nonce = str(receive(connection)["nonce"])
        send(connection, {**request, "proof": _proof(spec.secret, nonce)})
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def accept_request(connection: socket.socket, secret: str) -> dict[str, Any]:
    """Return the request of a client. OSError if it does not know the secret, or sends nothing."""
    connection.settimeout(HANDSHAKE_TIMEOUT_S)
    nonce = secrets.token_hex(16)
    send(connection, {"nonce": nonce})
    request = receive(connection)
    if not hmac.compare_digest(str(request.get("proof")), _proof(secret, nonce)):
        raise PermissionError("the other side does not know the secret of this job")
    connection.settimeout(None)
    return request


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    connection.sendall(len(data).to_bytes(_HEAD_BYTES, "big") + data)


def receive(connection: socket.socket) -> dict[str, Any]:
    """Receive a message; ConnectionError at the end of the connection or for invalid data."""
    size = int.from_bytes(_receive_exactly(connection, _HEAD_BYTES), "big")
    if size > _MAX_MESSAGE_BYTES:
        raise ConnectionError(f"a message of {size} bytes is too large")
    try:
        message = json.loads(_receive_exactly(connection, size))
    except ValueError as error:
        raise ConnectionError("received an invalid message") from error
    if not isinstance(message, dict):
        raise ConnectionError("received an invalid message")
    return message


def remote_shell_script(spec: LauncherSpec, boot: str, *, package: str) -> str:
    """Return a script that takes the arguments of ssh: a host and a command line."""
    return f'#!/bin/sh\nexec {shlex.join([spec.python, "-I", "-S", "-c", boot, package])} "$@"\n'


def main() -> None:
    _, _, host, *words = sys.argv
    spec = decode_spec(os.environ[SPEC_VARIABLE])
    try:
        with connect(spec, host, {"start": " ".join(words)}) as connection:
            code = receive(connection)["code"]
    except OSError as error:
        sys.exit(f"[trainyard] cannot reach {host}: {error}")
    os._exit(code if 0 <= code < 256 else 1)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the other side has closed the connection")
        data += chunk
    return data


def _proof(secret: str, nonce: str) -> str:
    return hmac.new(secret.encode(), f"launch:{nonce}".encode(), hashlib.sha256).hexdigest()
