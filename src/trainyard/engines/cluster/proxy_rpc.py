"""The protocol between an engine and its proxy: JSON, one object per line, over a socket pair.

    {"id": 7, "method": "start", "arguments": {…}}      from the engine, any number at once
    {"id": 7, "result": …}                              from the proxy, in any order
    {"id": 7, "error": {"kind": …, "arguments": […]}}   or this

The proxy may run on a thread of the same process or in a process of its own. The end of the stream tells either side
that the other is gone.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from trainyard.engines.cluster.contract import ClusterNode
from trainyard.engines.cluster.proxy import ClusterProxy
from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, TrainyardError, Unavailable

log = logging.getLogger(__name__)

# A struct timeval of 5 s: a proxy that reads nothing for that long is given up.
_SEND_TIMEOUT = struct.pack("@ll", 5, 0)
# Enough for the nodes of a large cluster.
_MAX_LINE_BYTES = 16 * 1024**2

_ERRORS: Mapping[str, type[TrainyardError]] = {
    each.__name__: each for each in (Conflict, InvalidRequest, NotFound, Unavailable)
}


# What a call is for, as messages say it.
_PURPOSES: Mapping[str, str] = {
    "nodes": "to a request for its nodes",
    "start": "to a request to start instances",
    "end": "to a request to end instances",
    "tell": "to a request to deliver a command",
    "ping": "at all",
}


class ProxyClient:
    """The engine's side of one proxy. Safe to share between threads."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        self._connection = connection
        self._sending = threading.Lock()
        self._ids = itertools.count(1)
        self._pending: dict[int, Future[Any]] = {}
        self._is_gone = threading.Event()
        threading.Thread(target=self._receive, name="proxy-answers", daemon=True).start()

    def nodes(self, *, timeout_s: float) -> tuple[ClusterNode, ...]:
        return tuple(map(_node, self._call("nodes", {}, timeout_s=timeout_s)))

    def start(self, attempt: AttemptRef, names: Sequence[str], *, timeout_s: float) -> None:
        self._call("start", {**_values(attempt), "names": list(names)}, timeout_s=timeout_s)

    def end(self, attempt: AttemptRef, *, patience_s: float, timeout_s: float) -> None:
        self._call("end", {**_values(attempt), "patience_s": patience_s}, timeout_s=timeout_s)

    def notify_command(self, instance: InstanceRef, *, timeout_s: float) -> None:
        self._call("tell", {**_values(instance.attempt), "name": instance.name}, timeout_s=timeout_s)

    def ping(self, *, timeout_s: float) -> None:
        """Raise Unavailable if the proxy does not answer at all."""
        self._call("ping", {}, timeout_s=timeout_s)

    def wait_until_gone(self, timeout_s: float) -> bool:
        """Wait until the proxy is gone. Return False if it is still there after the time."""
        return self._is_gone.wait(timeout_s)

    def close(self) -> None:
        """Close the connection. The proxy then ends."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _call(self, method: str, arguments: Mapping[str, Any], *, timeout_s: float) -> Any:
        number, answer = next(self._ids), Future[Any]()
        self._pending[number] = answer
        line = json.dumps({"id": number, "method": method, "arguments": arguments}).encode() + b"\n"
        try:
            self._send(line)
            if self._is_gone.is_set():
                # It may have gone before this call was pending, and then nobody fails the call.
                raise _proxy_gone()
            return answer.result(timeout_s)
        except TimeoutError as error:
            raise Unavailable(f"The cluster has not answered within {timeout_s:g} s {_PURPOSES[method]}.") from error
        finally:
            self._pending.pop(number, None)

    def _send(self, line: bytes) -> None:
        try:
            with self._sending:
                self._connection.sendall(line)
        except OSError as error:
            # Part of the line may have been sent, so nothing can follow it.
            self.close()
            raise _proxy_gone() from error

    def _receive(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    self._resolve(json.loads(line))
        except (OSError, ValueError) as error:
            log.warning("answers of the cluster proxy cannot be read", extra={"why": str(error)})
        self._is_gone.set()
        for answer in list(self._pending.values()):
            # The answer may have arrived just now.
            with contextlib.suppress(Exception):
                answer.set_exception(_proxy_gone())
        self._connection.close()

    def _resolve(self, message: Mapping[str, Any]) -> None:
        answer = self._pending.get(message["id"])
        if answer is None:
            # The caller has timed out.
            return
        if "error" in message:
            answer.set_exception(decode_error(message["error"]))
        else:
            answer.set_result(message["result"])


async def serve(connection: socket.socket, proxy: ClusterProxy) -> None:
    """Answer the calls of an engine until it is gone."""
    reader, writer = await asyncio.open_connection(sock=connection, limit=_MAX_LINE_BYTES)
    tasks: set[asyncio.Task[None]] = set()
    try:
        while line := await reader.readline():
            task = asyncio.create_task(_answer(json.loads(line), proxy, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    except ConnectionError:
        pass
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()


async def _answer(request: Mapping[str, Any], proxy: ClusterProxy, writer: asyncio.StreamWriter) -> None:
    answer: dict[str, Any] = {"id": request["id"]}
    try:
        answer["result"] = await _METHODS[request["method"]](proxy, **request["arguments"])
    except TrainyardError as error:
        answer["error"] = encode_error(error)
    except Exception as error:
        log.exception("a call to the cluster proxy failed", extra={"method": request["method"]})
        answer["error"] = {"kind": "Unavailable", "arguments": [f"The cluster proxy failed: {error!r}."]}
    with contextlib.suppress(ConnectionError):
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()


async def _ping(proxy: ClusterProxy) -> None:
    """Do nothing: the answer itself is what the caller wants."""


async def _nodes(proxy: ClusterProxy) -> list[dict[str, Any]]:
    return [dataclasses.asdict(each) for each in await proxy.nodes()]


async def _start(proxy: ClusterProxy, *, job_id: str, attempt: int, names: Sequence[str]) -> None:
    await proxy.start(AttemptRef(job_id, attempt), names)


async def _end(proxy: ClusterProxy, *, job_id: str, attempt: int, patience_s: float) -> None:
    await proxy.end(AttemptRef(job_id, attempt), patience_s=patience_s)


async def _notify_command(proxy: ClusterProxy, *, job_id: str, attempt: int, name: str) -> None:
    proxy.notify_command(InstanceRef(AttemptRef(job_id, attempt), name))


_METHODS: Mapping[str, Callable[..., Awaitable[Any]]] = {
    "ping": _ping,
    "nodes": _nodes,
    "start": _start,
    "end": _end,
    "tell": _notify_command,
}


def _values(attempt: AttemptRef) -> dict[str, Any]:
    return {"job_id": attempt.job_id, "attempt": attempt.attempt}


def _node(values: Mapping[str, Any]) -> ClusterNode:
    node = Node(**{**values["node"], "gpus": tuple(values["node"]["gpus"])})
    return ClusterNode(**{**values, "node": node})


def encode_error(error: TrainyardError) -> dict[str, Any]:
    """Encode an error for another process."""
    if isinstance(error, Conflict):
        return {"kind": "Conflict", "arguments": [error.kind, error.name, error.why]}
    if isinstance(error, NotFound):
        return {"kind": "NotFound", "arguments": [error.kind, error.name]}
    kind = "InvalidRequest" if isinstance(error, InvalidRequest) else "Unavailable"
    return {"kind": kind, "arguments": [error.message]}


def decode_error(values: Mapping[str, Any]) -> TrainyardError:
    """Decode an error of another process."""
    return _ERRORS[values["kind"]](*values["arguments"])


def _proxy_gone() -> Unavailable:
    return Unavailable("The proxy between this yard and its cluster has ended; it is being started again.")
